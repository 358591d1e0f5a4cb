"""The contract of unpacking: rows of a weight to what a tile multiplies.

``unpack_tile_row(isa, qt, w, to, k)`` writes the row's 64-byte pieces, each the row's line in one
tile, 1024 bytes apart: 64 ternary values as int8 in their order (on levels without tiles, for
quants/ternary_panel.py, values + 1), or 32 bfloat16. Types of more than 8 significant bits are
split: after the piece of bfloat16 comes that of what they leave. A row may be unpacked in parts of
256 elements.

``unpack_panel(isa, qt, w, stride, to, k, ahead, spare)`` does 16 rows, ``stride`` bytes apart; a
type may have a body for these, with 128 bytes to spare. It asks for as many bytes at ``ahead`` as
it reads: they are multiplied after these, and arrive meanwhile, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinity_kernels._jit import choose, inline
from trinity_kernels.ggml import TYPES_BY_NAME
from trinity_kernels.isa import jit_disabled

if not jit_disabled():
    from trinity_kernels import simd

_BODIES: dict[str, Callable[..., Any]] = {}
_PANELS: dict[str, Callable[..., Any]] = {}
_SPLIT: set[str] = set()
_STEPS: dict[str, int] = {}


def register_unpack(
    quant: str, body: Callable[..., Any] | None = None, *,
    panel: Callable[..., Any] | None = None, split: bool = False, step: int | None = None,
) -> None:  # fmt: skip
    """Give a type its way into tiles: a body for a row, or one for a panel.

    ``step``: bytes of 256 weights, where ggml's table of types does not tell them.
    """
    assert body is not None or panel is not None
    _PANELS[quant] = panel or _rows
    if body is not None:
        _BODIES[quant] = body
    if split:
        _SPLIT.add(quant)
    if step is None:
        found = TYPES_BY_NAME[quant]
        step = 256 // found.block_size * found.type_size
    _STEPS[quant] = step


def tile_types() -> frozenset[str]:
    """The types that the tile kernel takes."""
    return frozenset(_PANELS)


def tile_parts(quant: str, form: str) -> tuple[int, int]:
    """Tiles for 32 weights and for 32 activations (for 64 where both are int8)."""
    return (2 if quant in _SPLIT else 1), (2 if form == "f32" else 1)


def step_bytes(quant: str) -> int:
    """Bytes of 256 weights of a row."""
    return _STEPS[quant]


def ternary_offset(isa: Any) -> Any:
    """What ternary values as unpacked lie below their codes 0, 1, 2."""


@choose(ternary_offset)
def _ternary_offset_of(isa: Any) -> Any:
    return (lambda isa: 1) if isa.value == "amx" else (lambda isa: 0)


def unpack_tile_row(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    """See the module."""


@choose(unpack_tile_row)
def _unpack_of(isa: Any, qt: Any, w: Any, to: Any, k: Any) -> Any:
    return _BODIES.get(qt.value)


def _rows(
    isa: Any, qt: Any, w: int, stride: int, to: int, k: int, ahead: int, spare: int
) -> None:  # fmt: skip
    nbytes = step_bytes_of(qt) * k // 256
    for row in range(16):
        ask_for(ahead + row * nbytes, nbytes)
        unpack_tile_row(isa, qt, w + row * stride, to + 64 * row, k)


@inline
def ask_for(address: int, nbytes: int) -> None:
    """Bring bytes as near as the second-level cache."""
    for line in range(0, nbytes, 64):
        simd.prefetch_l2(address + line)


def step_bytes_of(qt: Any) -> int:
    """Bytes of 256 weights of a row, by the type's tag."""
    return step_bytes(qt.value)


@choose(step_bytes_of)
def _step_bytes_of(qt: Any) -> Any:
    nbytes = step_bytes(qt.value)
    return lambda qt: nbytes


def unpack_panel(
    isa: Any, qt: Any, w: int, stride: int, to: int, k: int, ahead: int, spare: int
) -> None:  # fmt: skip
    """See the module."""


@choose(unpack_panel)
def _panel_of(
    isa: Any, qt: Any, w: Any, stride: Any, to: Any, k: Any, ahead: Any, spare: Any
) -> Any:  # fmt: skip
    return _PANELS.get(qt.value)
