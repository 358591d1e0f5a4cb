"""Dot products: a row of weights times a row of activations, what every level and type has.

``dot_row(isa, qt, w, x, k)`` gives the float32 sum of ``k`` products; ``w`` is the address of the
first byte of the row of weights, ``x`` that of the activations in the form that the type takes
(activations.py).

Numerics: integer sums are exact. Floats are summed in 16 lanes, lane = (element // 4) mod 16 for q8
and q19, of affine types of 4 bits (element // 8) mod 16, and for f32 element mod 16; each product
and sum is rounded once (fused); then by one fixed tree; of ternary types with scales, block by
block, fused. The result is the same to the last bit on every level.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels.ops.matmul.dot_affine4 import dot_affine4
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
from trinity_kernels.tags import chosen

_BODIES: dict[type[BlockReader], Any] = {
    Plain: dot_plain,
    Affine4: dot_affine4,
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
