"""Blocks of 32 on int8 tiles: reading them, and adding their products, for tiles_int8.py.

A part is four blocks. Tiles are loaded directly from the codes of Q8_0. The codes of other types
are written as bytes, two blocks to a line of 64. They are signed, except for types with a minimum,
which is multiplied by the sum of the block's activations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32
from trinity_kernels.ops.matmul.readers import (
    bytes_at,
    codes_of_pair,
    minima_of_16,
    minimum_at,
    nbytes,
    offset,
    scales_of_16,
)

# Parts whose scales are kept until they are added, and the bytes of each: scales, then minima.
PARTS_KEPT, SCALES_BYTES = 4, 512


@inline
def read(
    isa: Any, qt: Any, step: int, part: int, w: int, stride: int, left: int, codes: int,
    scales: int, turn: int,
) -> None:  # fmt: skip
    """Read a quarter of a part's codes and a block's scales; ``left``: elements left of the row."""
    blocks = left // 32
    size = nbytes(qt)
    if bytes_at(qt) == 0:
        above = simd.splat_i8x64(offset(qt))
        for row in range(4 * step, 4 * step + 4):
            first = w + row * stride
            line = codes + 64 * row
            if blocks >= 4:
                simd.store_i8x64(line, codes_of_pair(isa, qt, first, first + size) - above)
                first += 2 * size
                last = codes_of_pair(isa, qt, first, first + size) - above
                simd.store_i8x64(line + 1024, last)
            else:
                for b in range(0, blocks, 2):
                    second = first + size if b + 1 < blocks else 0
                    simd.store_i8x64(line, codes_of_pair(isa, qt, first, second) - above)
                    first += 2 * size
                    line += 1024
    to = scales + turn % PARTS_KEPT * SCALES_BYTES + 64 * step
    d = simd.splat_f32x16(np.float32(0))
    m = simd.splat_f32x16(np.float32(0))
    # The sums of missing blocks are stale, so their scales are 0.
    if step < blocks:
        d = scales_of_16(qt, w + step * size, stride)
        if minimum_at(qt) != 0:
            m = minima_of_16(qt, w + step * size, stride)
    simd.store_f32x16(to, d)
    if minimum_at(qt) != 0:
        simd.store_f32x16(to + 256, m)


@inline
def add_scaled(sums: int, d: int, x_scale: Any, y: Any) -> Any:
    """y + a row's 16 int32 at ``sums`` times its scale at ``d`` and the tokens' scales."""
    factor = simd.splat_f32x16(get_f32(d)) * x_scale
    return simd.fma_f32x16(simd.to_f32x16(simd.load_i32x16(sums)), factor, y)


@inline
def add_minimum(m: int, x_sum: Any, y: Any) -> Any:
    """y + a row's minimum at ``m`` times the tokens' scaled sums."""
    return simd.fma_f32x16(simd.splat_f32x16(get_f32(m)), x_sum, y)


@inline
def add(
    qt: Any, step: int, part: int, x_scales: int, x_sums: int, to: int, sums: int, scales: int,
    turn: int,
) -> None:  # fmt: skip
    """Add a part's products of a quarter of the rows to float32 ``to`` [16 rows][16 tokens]."""
    first = scales + turn % PARTS_KEPT * SCALES_BYTES
    s0, s1 = simd.load_f32x16(x_scales), simd.load_f32x16(x_scales + 64)
    s2, s3 = simd.load_f32x16(x_scales + 128), simd.load_f32x16(x_scales + 192)
    for row in range(4 * step, 4 * step + 4):
        d = first + 4 * row
        y = simd.load_f32x16(to + 64 * row)
        if minimum_at(qt) != 0:
            y = add_minimum(d + 256, simd.load_f32x16(x_sums), y)
            y = add_minimum(d + 320, simd.load_f32x16(x_sums + 64), y)
            y = add_minimum(d + 384, simd.load_f32x16(x_sums + 128), y)
            y = add_minimum(d + 448, simd.load_f32x16(x_sums + 192), y)
        at = sums + 64 * row
        y = add_scaled(at, d, s0, y)
        y = add_scaled(at + 1024, d + 64, s1, y)
        y = add_scaled(at + 2048, d + 128, s2, y)
        y = add_scaled(at + 3072, d + 192, s3, y)
        simd.store_f32x16(to + 64 * row, y)
