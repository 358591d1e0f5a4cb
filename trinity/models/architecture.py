"""What a family's file declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trinity.config import ModelConfig
from trinity.models.operations import Operation

Has = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One decoder family.

    ``names``: the values of ``general.architecture`` that mean it. ``layer(config, index, has)``:
    the operations of layer ``index`` in order; ``has`` tells whether the file has a weight of that
    layer. ``rope_halves``: dimensions (i, i + n/2) rotate together, else neighbours (2i, 2i+1), as
    the family's GGUF files have it. ``embedding_scale(config)``: what embeddings are multiplied by.
    """

    names: tuple[str, ...]
    layer: Callable[[ModelConfig, int, Has], list[Operation]]
    rope_halves: bool
    embedding_scale: Callable[[ModelConfig], float] = lambda config: 1.0
