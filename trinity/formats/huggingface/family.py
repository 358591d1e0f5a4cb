"""The declarations in a family's file: Hugging Face's classes, their configuration and modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import Terms, class_name_of
from trinity.formats.huggingface.table import PLAIN_ENDS, Tables
from trinity.formats.huggingface.values import Values

LAYER = "model.layers."
Keys = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Terms):
    """Classes whose checkpoints are alike: how config.json says their values, and their tensors."""

    # The classes of transformers, each with the value of general.architecture.
    classes: Mapping[str, str] = field(default_factory=dict)
    # Classes that hold such a model and other networks, which are not read.
    wrappers: Mapping[str, str] = field(default_factory=dict)
    # The activations that are supported.
    activations: tuple[str, ...] = ("silu",)
    # The value of general.architecture of models with an activation, if it differs.
    by_activation: Mapping[str, str] = field(default_factory=dict)
    # The value of general.architecture of models with experts, if it differs.
    with_experts: str = ""
    # The tensors of a layer, after "model.layers.N.". Each layer takes those that it needs.
    layer: Tables
    # The tensors outside of layers. The embedding is the first; the output's weight, which may be
    # tied to it, is not among them.
    ends: Tables = field(default_factory=lambda: PLAIN_ENDS)
    # Returns config.json's values in other families' words, before anything reads them.
    prepare: Callable[[Values], Values] = lambda values: values
    # Raises UnsupportedError or ConfigError for what GGUF cannot express or the class never has.
    check: Callable[[ModelConfig, Values], None] = lambda config, values: None
    # Fields of ModelConfig in addition to those of every class, and GGUF's other keys, without the
    # architecture; None removes one that every model has. Raises as ``check``.
    keys: Callable[[ModelConfig, Values], Keys] = lambda config, values: {}
    # Fields of ModelConfig with a number for each layer, and the layer's tensors that have them.
    numbers: Mapping[str, str] = field(default_factory=dict)
    # The class itself has ternary layers.
    ternary: bool = False
    # The value of tokenizer.ggml.model where the tokenizer's files do not tell it; Sarvam's is that
    # of tokenizer.ggml.pre.
    tokenizer: str | None = None
    # A regular expression for tensors that the class loads and does not use.
    unused: str | Callable[[ModelConfig, Values], str] = ""
    # GGUF's weight of the output is multiplied by it.
    head_factor: Callable[[Values], float] = lambda values: 1.0
    # mlx-lm uses a checkpoint's output weight even if tie_word_embeddings is true.
    mlx_head: bool = False
    # mlx-lm's checkpoints have a convolution's taps on the second axis, and norms with 1 added.
    mlx_turns: bool = False
    # Beginnings of names, and the class's beginnings; the first that fits counts.
    renames: tuple[tuple[str, str], ...] = ()
    # GGUF's divisors of frequencies are as many as pairs of a whole head; the last ones are 1.
    whole_factors: bool = False
    # The model has no output matrix.
    headless: bool = False
    # False if the class ignores tie_word_embeddings.
    ties: bool = True
    # The tensors of a layer that proposes tokens, which a checkpoint may have: groups, each with
    # the beginning of its names, in which {} is the number of layers.
    drafting: tuple[tuple[str, Tables], ...] = ()
    # The key of config.json that such a layer requires; "": none.
    drafting_key: str = ""
    # The model_type of text_config in ``wrappers``, if other families have these classes, too.
    inner_type: str = ""

    @property
    def architectures(self) -> tuple[str, ...]:
        """All values of general.architecture."""
        named = *self.classes.values(), *self.wrappers.values(), *self.by_activation.values()
        return *named, self.with_experts

    def architecture(self, config: ModelConfig, values: Values) -> str:
        """Return general.architecture. Raises UnsupportedError for another activation."""
        activation = values.text(self.activation, "silu")
        if activation not in self.activations:
            raise UnsupportedError(
                f"{values.source}: {self.activation} is {activation[:40]!r}; trinity reads "
                f"{class_name_of(values)} with {', '.join(self.activations)}"
            )
        if config.experts is not None and self.with_experts:
            return self.with_experts
        if activation in self.by_activation:
            return self.by_activation[activation]
        return {**self.classes, **self.wrappers}[class_name_of(values)]
