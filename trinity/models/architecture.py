"""What a family's file declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from trinity.config import ModelConfig
from trinity.models.operations import Operation

Has = Callable[[str], bool]
DRAFT_STATE, DRAFT_TOKEN = "draft_state", "draft_token"  # buffers


@dataclass(frozen=True, slots=True)
class TokenTable:
    """A second embedding: a row of ``weight`` for each token, times ``scale``, into ``buffer``."""

    weight: str
    buffer: str
    width: int
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class AddedRowNames:
    """Weights with a row for each position, and for each text of a pair; "" where there is none.

    ``texts`` may lack in a file.
    """

    positions: str = ""
    texts: str = ""


@dataclass(frozen=True, slots=True)
class Architecture:
    """One family of decoders, or of encoders.

    ``names``: the values of ``general.architecture`` that mean it. ``layer(config, index, has)``:
    the operations of layer ``index`` in order; ``has`` tells whether the file has a weight of that
    layer. ``rope_halves``: dimensions (i, i + n/2) rotate together, else neighbours (2i, 2i+1), as
    the family's GGUF files have it. ``embedding_scale(config)``: what embeddings are multiplied by.
    ``tables(config)``: further embeddings; ``prologue(config)``: operations between embeddings and
    the first layer, whose weights belong to the model. ``norm``: the kind of the last norm, "none":
    there is none; ``output_norm``: the name of its weight. ``encodes``: tokens see the whole of
    their text, and there is no head: the result is their hidden states. ``added_rows``: weights of
    which a row is added to each embedding: one by the token's position, one by the number of the
    text that it belongs to, 0 or 1.
    ``logit_scale(config)``: what logits are multiplied by; then those of a model with
    ``logit_softcap(config)`` c become c * tanh(logit / c). ``window``: that of windowed layers
    where the file names none. ``needs``: fields of the configuration without which the family has
    no meaning, each with the key that gives it. ``unread``: tensors of a layer that a file may
    have, and the family does without. ``mixed``: a layer may have no heads of keys, or no dense
    feed-forward. ``drafting(config, has)``: the operations of the layer behind the last, which
    makes of DRAFT_STATE, the hidden state behind a token's output norm, and DRAFT_TOKEN, the
    embedding of the token after it, the residual stream of what comes then.
    """

    names: tuple[str, ...]
    layer: Callable[[ModelConfig, int, Has], list[Operation]]
    rope_halves: bool
    embedding_scale: Callable[[ModelConfig], float] = lambda config: 1.0
    tables: Callable[[ModelConfig], tuple[TokenTable, ...]] = lambda config: ()
    prologue: Callable[[ModelConfig], list[Operation]] = lambda config: []
    norm: Literal["rms", "layer", "none"] = "rms"
    output_norm: str = "output_norm"
    encodes: bool = False
    added_rows: AddedRowNames = AddedRowNames()
    logit_scale: Callable[[ModelConfig], float] = lambda config: 1.0
    logit_softcap: Callable[[ModelConfig], float] = lambda config: config.final_logit_softcap or 0.0
    window: int | None = None
    needs: tuple[tuple[str, str], ...] = ()
    unread: frozenset[str] = frozenset()
    mixed: bool = False
    drafting: Callable[[ModelConfig, Has], list[Operation]] | None = None

    def completed(self, config: ModelConfig) -> ModelConfig:
        """The configuration with what the family has where the file says nothing."""
        if config.sliding_window is None and self.window is not None:
            return replace(config, sliding_window=self.window)
        return config
