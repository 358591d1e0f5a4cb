"""The declaration of an architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from trinity.config import ModelConfig
from trinity.models.operations import Operation

Has = Callable[[str], bool]
DRAFT_STATE, DRAFT_TOKEN = "draft_state", "draft_token"  # buffers


class TokenTable(NamedTuple):
    """A second embedding: a row of ``weight`` for each token, times ``scale``, into ``buffer``."""

    weight: str
    buffer: str
    width: int
    scale: float = 1.0
    rows: int = 0  # tokens from this one on have row 0; 0: all tokens have their own


@dataclass(frozen=True, slots=True)
class AddedRowNames:
    """Weights with a row for each position, and for each text of a pair; "" if there are none.

    ``texts`` may be missing in a file.
    """

    positions: str = ""
    texts: str = ""


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture of decoders or of encoders.

    Functions of a configuration may also take ``has``, which tells whether the file has a weight of
    the layer.
    """

    names: tuple[str, ...]
    """The values of ``general.architecture``."""
    layer: Callable[[ModelConfig, int, Has], list[Operation]]
    """The operations of the layer with this index, in order."""
    rope_halves: bool
    """In GGUF files, dimensions (i, i + n/2) rotate together; otherwise (2i, 2i+1)."""
    embedding_scale: Callable[[ModelConfig], float] = lambda config: 1.0
    """The factor of embeddings."""
    tables: Callable[[ModelConfig], tuple[TokenTable, ...]] = lambda config: ()
    """Further token embeddings."""
    prologue: Callable[[ModelConfig], list[Operation]] = lambda config: []
    """Operations before the first layer; their weights have no layer prefix."""
    epilogue: Callable[[ModelConfig], list[Operation]] = lambda config: []
    """Operations between the last layer and the output norm; without a layer prefix."""
    norm: Literal["rms", "layer", "none"] = "rms"
    """The kind of the output norm."""
    rms_by_key: bool = False
    """The norms are RMS norms if the file has an epsilon under the key for these."""
    output_norm: str = "output_norm"
    """The weight of the output norm; "": it has none."""
    encodes: bool = False
    """An encoder: attention is bidirectional, and the result is the hidden states."""
    images_both_ways: Literal["", "all", "windowed"] = ""
    """The layers in which the rows of an image may attend to each other, whatever their order."""
    axes: Literal["", "blocks", "interleaved"] = ""
    """Images have positions in time, height and width, and pairs of a head rotate by one of them:
    by each in a block, or interleaved. Empty: images have positions like text."""
    halves_with_axes: bool = False
    """``rope_halves`` holds for files with positions of images in height and width."""
    added_rows: AddedRowNames = AddedRowNames()
    """Position and token-type embeddings."""
    logit_scale: Callable[[ModelConfig], float] = lambda config: 1.0
    """The factor of logits."""
    logit_softcap: Callable[[ModelConfig], float] = lambda config: config.final_logit_softcap or 0.0
    """c, if not 0: scaled logits become c * tanh(logit / c)."""
    window: int | None = None
    """The window of windowed layers if the file has none."""
    needs: tuple[str, ...] = ()
    """Fields of ModelConfig without which the family has no meaning."""
    unread: frozenset[str] = frozenset()
    """Tensors of a layer that a file may have and the architecture ignores."""
    mixed: bool = False
    """Layers may have no key heads, or no dense feed-forward."""
    heads_by_layer: bool = False
    """Layers may have different numbers of query heads."""
    drafting: Callable[[ModelConfig, Has], list[Operation]] | None = None
    """The operations of the multi-token prediction layer.

    They compute the residual stream for the next token from DRAFT_STATE, the hidden state of a
    token after the output norm, and DRAFT_TOKEN, the embedding of the following token.
    """

    def of(self, config: ModelConfig) -> Architecture:
        """Return the architecture with the norms and the rotation of this configuration."""
        found = replace(self, norm="rms") if self.rms_by_key and config.rms_norms else self
        if self.halves_with_axes and config.rope_sections:
            return replace(found, rope_halves=True)
        return found

    def completed(self, config: ModelConfig) -> ModelConfig:
        """Return the configuration with the family's values for what the file does not say."""
        if config.sliding_window is None and self.window is not None:
            return replace(config, sliding_window=self.window)
        return config
