"""The contract of unpacking: one row of a weight to what a tile multiplies.

``unpack_tile_row(isa, qt, w, to, k)`` writes the row's 64-byte pieces 1024 bytes apart, each the
row's line in one tile: int8 codes in the ternary order for I2_S, else 32 bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinity_kernels._jit import choose

# Bytes that unpacking asks for ahead: they arrive while the tiles of this panel are multiplied.
PANEL_AHEAD = 16384

_BODIES: dict[str, Callable[..., Any]] = {}


def register_unpack(quant: str, body: Callable[..., Any]) -> None:
    """Give a type its way into tiles."""
    _BODIES[quant] = body


def tile_types() -> frozenset[str]:
    """The types that the tile kernel takes."""
    return frozenset(_BODIES)


def unpack_tile_row(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    """See the module."""


@choose(unpack_tile_row)
def _unpack_of(isa: Any, qt: Any, w: Any, to: Any, k: Any) -> Any:
    return _BODIES.get(qt.value)
