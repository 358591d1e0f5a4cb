"""What a family's file declares: classes of Hugging Face's, their configuration and modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.blocks import embedding, norm
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.quantization import Ternary
from trinity.formats.huggingface.stored import Module

LAYER = "model.layers."
Keys = Mapping[str, object]
Group = tuple[str, Iterable[Module]]
NO_TERMS = Terms()


def plain_ends(config: HFConfig) -> Iterable[Module]:
    """The embedding and the last norm."""
    yield embedding(config)
    yield from norm("output_norm", "model.norm", config.hidden_size)


@dataclass(frozen=True, slots=True)
class Family:
    """Classes whose checkpoints are alike.

    ``architectures``: the activation to the value of general.architecture. ``terms``: the classes'
    words. ``layer(config, index)``: the modules of a layer; ``ends(config)``: those outside of
    layers, the embedding first, but not the output's weight, which may be tied.
    ``keys(config)``: GGUF's keys beside those that every model has, without the architecture; None
    takes one of these away.
    ``rope_dim(config)``: dimensions of a head that rotate in layers without a window.
    ``window_in_keys``: these keys say which layers have a window; else only a context within the
    window can be told. ``ternary``: the class itself means ternary layers. ``tokenizer``: the value
    of tokenizer.ggml.model where the tokenizer's files do not tell it. ``unused(config)``: a
    regular expression for tensors that the class loads and does not use. ``wrappers``: classes
    that hold such a model beside other networks, which are left out. ``with_experts``: the value of
    general.architecture of models with experts, where it is another one. ``head_factor(config)``:
    what the output's weight is multiplied by in GGUF. ``mlx_head``: mlx-lm multiplies by a weight
    of the output wherever a checkpoint has one, whatever tie_word_embeddings is. ``mlx_turns``:
    mlx-lm's checkpoints have taps of convolutions last but one, and norms with 1 added.
    ``renames``: what names begin with, and what modules have for it; the first that fits counts.
    ``headless``: there is no output matrix. ``ties``: False where the class ignores
    tie_word_embeddings. ``drafting(config)``: the modules of a layer that proposes tokens, which a
    checkpoint may have, in groups, each after what its names begin with.
    """

    class_names: tuple[str, ...]
    architectures: Mapping[str, str]
    layer: Callable[[HFConfig, int], Iterable[Module]]
    terms: Terms = NO_TERMS
    ends: Callable[[HFConfig], Iterable[Module]] = plain_ends
    keys: Callable[[HFConfig], Keys] = lambda config: {}
    rope_dim: Callable[[HFConfig], int] = lambda config: config.rope_dim
    window_in_keys: bool = False
    ternary: bool = False
    tokenizer: str | None = None
    unused: Callable[[HFConfig], str] = lambda config: ""
    wrappers: tuple[str, ...] = ()
    with_experts: str = ""
    head_factor: Callable[[HFConfig], float] = lambda config: 1.0
    mlx_head: bool = False
    mlx_turns: bool = False
    renames: tuple[tuple[str, str], ...] = ()
    headless: bool = False
    ties: bool = True
    drafting: Callable[[HFConfig], Iterable[Group]] = lambda config: ()

    def architecture(self, config: HFConfig) -> str:
        """The value of general.architecture. Raises UnsupportedError for another activation."""
        if config.hidden_act not in self.architectures:
            raise UnsupportedError(
                f"{config.source}: {self.terms.activation} is {config.hidden_act[:40]!r}; trinity "
                f"reads {config.class_name} with {', '.join(self.architectures)}"
            )
        if config.experts is not None and self.with_experts:
            return self.with_experts
        return self.architectures[config.hidden_act]

    def ternary_form(self, config: HFConfig) -> Ternary | None:
        """How the layers' weights are stored where they are ternary, else None."""
        if config.quantization is None and self.ternary:
            return Ternary(packed=False)
        return config.quantization
