"""Dot products of a row of weights and a row of activations, for every level and type.

``dot_row(isa, qt, w, x, k)`` returns the float32 sum of ``k`` products. ``w`` is the address of the
row of weights, ``x`` that of the activations in the type's form (activations.py).

Numerics: integer sums are exact. Floats are summed in 16 lanes with fused multiply-add, and then by
one fixed tree. The lane is (element // 4) mod 16 for q8 and q19, (element // 8) mod 16 for affine
types of 4 bits, and element mod 16 for f32. Ternary types with scales are summed block by block,
fused. The result is bit-identical on every level.

``dot_rows`` multiplies several rows of weights, on some levels for some types, with the same bits:
they share the loads of activations and hide the cost of the end of a row.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels.isa import is_compiled_copy
from trinity_kernels.ops.matmul import (
    dot_affine4,
    dot_block_rows,
    dot_nibble_rows,
    dot_superblock_rows,
)
from trinity_kernels.ops.matmul.dot_block32 import dot_block32
from trinity_kernels.ops.matmul.dot_nibbles import dot_nibbles
from trinity_kernels.ops.matmul.dot_plain import dot_plain
from trinity_kernels.ops.matmul.dot_superblock import dot_superblock
from trinity_kernels.ops.matmul.dot_ternary import dot_blocks, dot_codes
from trinity_kernels.quants import READERS, BlockReader
from trinity_kernels.quants.affine4 import Affine4
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.quants.floats import Plain
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.quants.ternary import Ternary
from trinity_kernels.tags import chosen, constant

_LEVELS = frozenset({"avx2", "avx512vnni", "amx"})

_BODIES: dict[type[BlockReader], Any] = {
    Plain: dot_plain,
    Affine4: dot_affine4.dot_affine4,
    Block32: dot_block32,
    SuperBlock: dot_superblock,
    Ternary: dot_codes,
}


def _body(qt: Any) -> Any:
    reader = READERS[qt.value]
    if reader.nibbles_at:
        return dot_nibbles
    if reader.scale_at:
        return dot_blocks
    return _BODIES[type(reader)]


@chosen
def dot_row(isa: Any, qt: Any, w: Any, x: Any, k: Any) -> Any:
    """The sum of ``k`` products of weights at ``w`` and activations at ``x``, float32."""
    body = _body(qt)
    return lambda isa, qt, w, x, k: body(isa, qt, w, x, k)


@constant
def rows_at_once(isa: Any, qt: Any) -> int:
    """Rows of weights that ``dot_rows`` takes; 0 if it takes none."""
    reader = READERS[qt.value]
    if isa.value not in _LEVELS or not is_compiled_copy():
        return 0
    if isa.value == dot_nibble_rows.LEVEL:
        return dot_block_rows.ROWS if reader.nibbles_at else 0
    if reader.in_order:
        return dot_affine4.ROWS
    return dot_block_rows.block_rows(reader) or dot_superblock_rows.superblock_rows(qt.value)


@chosen
def dot_rows(isa: Any, qt: Any, w: Any, stride: Any, x: Any, k: Any, to: Any) -> Any:
    """Multiply rows, ``stride`` bytes apart, by the activations at ``x``: float32 at ``to``."""
    if rows_at_once(isa, qt) == 0:
        return lambda isa, qt, w, stride, x, k, to: None
    rows: Any = dot_block_rows.dot_block_rows
    if isa.value == dot_nibble_rows.LEVEL:
        rows = dot_nibble_rows.dot_nibble_rows
    elif READERS[qt.value].in_order:
        rows = dot_affine4.dot_affine4_rows
    elif dot_superblock_rows.superblock_rows(qt.value):
        rows = dot_superblock_rows.dot_superblock_rows
    return lambda isa, qt, w, stride, x, k, to: rows(isa, qt, w, stride, x, k, to)
