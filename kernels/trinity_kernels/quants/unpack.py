"""The contract of unpacking: one row of a weight to what a tile multiplies.

``unpack_tile_row(isa, qt, w, to, k)`` writes the row's 64-byte pieces, each the row's line in one
tile, 1024 bytes apart: int8 codes in the ternary order, 64 to a piece, or 32 bfloat16. Types of
more than 8 significant bits are split: after the piece of bfloat16 comes that of what they leave.
A row may be unpacked in parts of 256 elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinity_kernels._jit import choose
from trinity_kernels.ggml import TYPES_BY_NAME

# Bytes that unpacking asks for ahead: they arrive while the tiles of this panel are multiplied.
PANEL_AHEAD = 16384

_BODIES: dict[str, Callable[..., Any]] = {}
_SPLIT: set[str] = set()


def register_unpack(quant: str, body: Callable[..., Any], *, split: bool = False) -> None:
    """Give a type its way into tiles."""
    _BODIES[quant] = body
    if split:
        _SPLIT.add(quant)


def tile_types() -> frozenset[str]:
    """The types that the tile kernel takes."""
    return frozenset(_BODIES)


def tile_parts(quant: str, form: str) -> tuple[int, int]:
    """Tiles for 32 weights and for 32 activations (for 64 where both are int8)."""
    return (2 if quant in _SPLIT else 1), (2 if form == "f32" else 1)


def step_bytes(quant: str) -> int:
    """Bytes of 256 weights of a row."""
    if quant == "I2_S":
        return 64
    found = TYPES_BY_NAME[quant]
    return 256 // found.block_size * found.type_size


def unpack_tile_row(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    """See the module."""


@choose(unpack_tile_row)
def _unpack_of(isa: Any, qt: Any, w: Any, to: Any, k: Any) -> Any:
    return _BODIES.get(qt.value)
