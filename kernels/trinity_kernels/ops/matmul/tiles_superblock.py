"""Superblocks on int8 tiles: reading them, and adding their products, for tiles_int8.py.

A group has 16 or 32 elements, a part four groups. Codes are written as lines of 64 bytes for each
row, signed except for types with minima. The scales of a block are written as 16 lanes for each
row, or, if there are minima, whose bits are scattered, as 16 rows for each scale.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.ops.matmul.columns import store_scale_columns
from trinity_kernels.ops.matmul.readers import codes_of_part, minima, offset, scales_of
from trinity_kernels.ops.matmul.tile_layout import parts_of, tile_group
from trinity_kernels.ops.matmul.tiles_block32 import add_minimum, add_scaled
from trinity_kernels.quants import READERS
from trinity_kernels.tags import chosen

# Blocks whose scales are kept until their last part is added, and the bytes of each.
BLOCKS_KEPT, SCALES_BYTES = 4, 1024


def _codes_of(first: int) -> Any:
    """A function that writes 64 codes of four rows: those of the block's part ``first``."""

    @inline
    def codes(isa: Any, qt: Any, step: int, w: int, stride: int, to: int) -> None:
        above = simd.splat_i8x64(offset(qt))
        for row in range(4 * step, 4 * step + 4):
            line = codes_of_part(isa, qt, w + row * stride, first)
            simd.store_i8x64(to + 64 * row, line - above)

    return codes


_codes_0, _codes_1, _codes_2, _codes_3 = (_codes_of(first) for first in range(4))


@chosen
def _read_scales(qt: Any, step: Any, w: Any, stride: Any, to: Any) -> Any:
    """Write a quarter of the scales of 16 blocks, or all of them in the first step."""

    def read_columns(qt: Any, step: int, w: int, stride: int, to: int) -> None:
        if step == 0:
            store_scale_columns(qt, w, stride, to)

    def read_rows(qt: Any, step: int, w: int, stride: int, to: int) -> None:
        for row in range(4 * step, 4 * step + 4):
            simd.store_f32x16(to + 64 * row, scales_of(qt, w + row * stride))

    return read_columns if READERS[qt.value].minima == 32 else read_rows


@inline
def read(
    isa: Any, qt: Any, step: int, part: int, w: int, stride: int, left: int, codes: int,
    scales: int, turn: int,
) -> None:  # fmt: skip
    """Read a quarter of a part's codes, and with the block's first part its scales."""
    parts, width = parts_of(qt), tile_group(qt)
    if width == 32:
        if part == 0:
            _codes_0(isa, qt, step, w, stride, codes)
            _codes_1(isa, qt, step, w, stride, codes + 1024)
        elif parts > 1:
            _codes_2(isa, qt, step, w, stride, codes)
            _codes_3(isa, qt, step, w, stride, codes + 1024)
    elif part == 0:
        _codes_0(isa, qt, step, w, stride, codes)
    elif parts > 1:
        if part == 1:
            _codes_1(isa, qt, step, w, stride, codes)
        elif part == 2:
            _codes_2(isa, qt, step, w, stride, codes)
        else:
            _codes_3(isa, qt, step, w, stride, codes)
    if part == 0:
        to = scales + turn // parts % BLOCKS_KEPT * SCALES_BYTES
        _read_scales(qt, step, w, stride, to)


@inline
def add(
    qt: Any, step: int, part: int, x_scales: int, x_sums: int, to: int, sums: int, scales: int,
    turn: int,
) -> None:  # fmt: skip
    """Add a part's products of a quarter of the rows to float32 ``to`` [16 rows][16 tokens]."""
    parts, width = parts_of(qt), tile_group(qt)
    first = scales + turn // parts % BLOCKS_KEPT * SCALES_BYTES
    # Bytes from a group's scale to the next group's, and to the next row's.
    group, row_bytes = 4, 64
    if minima(qt) == 32:
        group, row_bytes = 64, 4
    first += 4 * group * part
    s0, s1 = simd.load_f32x16(x_scales), simd.load_f32x16(x_scales + 64)
    s2, s3 = s1, s1
    if width == 32:
        s2, s3 = simd.load_f32x16(x_scales + 128), simd.load_f32x16(x_scales + 192)
    else:
        s1 = s0
    for row in range(4 * step, 4 * step + 4):
        d = first + row_bytes * row
        y = simd.load_f32x16(to + 64 * row)
        if minima(qt) == 32:
            m = d + 8 * group
            y = add_minimum(m, simd.load_f32x16(x_sums), y)
            y = add_minimum(m + group, simd.load_f32x16(x_sums + 64), y)
            y = add_minimum(m + 2 * group, simd.load_f32x16(x_sums + 128), y)
            y = add_minimum(m + 3 * group, simd.load_f32x16(x_sums + 192), y)
        at = sums + 64 * row
        y = add_scaled(at, d, s0, y)
        y = add_scaled(at + 1024, d + group, s1, y)
        y = add_scaled(at + 2048, d + 2 * group, s2, y)
        y = add_scaled(at + 3072, d + 3 * group, s3, y)
        simd.store_f32x16(to + 64 * row, y)
