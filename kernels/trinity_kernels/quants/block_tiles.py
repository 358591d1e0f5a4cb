"""Blocks of 32 on int8 tiles: the exact integer sums of a block, then float32, as single steps do.

A tile holds one block of 16 rows; its product with a block of 16 tokens is int32 [row][token].
Such sums wait in the first-level cache until each row adds up scale * sum for all tokens at once.
Q8_0's codes are tiles where they lie. Those of other types are written as bytes, two blocks to a
line of 64; signed, but for types with a minimum, which multiplies the sum of the block's
activations.

Tiles, vectors and memory work at the same time only where their instructions alternate closely: a
part, four blocks of 16 rows, is read, multiplied, stored and added up in four turns of the loop,
each turn in four steps, which do a quarter of that for four parts in a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import choose, inline
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_f32
from trinity_kernels.quants.block32 import block_of, codes_of_pair

# Blocks of a row that are multiplied together: as many as there are tiles of sums.
PART = 4
# A thread's room: codes of two parts, sums of two, scales and minima of four.
_CODES, _SUMS, _SCALES = 0, 4096, 12288
ROOM_BYTES = _SCALES + 4 * 512

if not jit_disabled():
    from trinity_kernels import simd, tiles
    from trinity_kernels.quants.block32 import strided_f16x16, strided_scales


def _layout(qt: Any) -> Any:
    """Bytes of a block, where its minimum is (0: none), how far its codes stand above signed."""


def _bytes_at(qt: Any) -> Any:
    """Where the codes lie in a block as a tile holds them; 0: they do not."""


@choose(_layout)
def _layout_of(qt: Any) -> Any:
    block = block_of(qt.value)
    found = block.nbytes, block.min_at, 1 << block.offset_bits if block.offset_bits else 0
    return lambda qt: found


@choose(_bytes_at)
def _bytes_at_of(qt: Any) -> Any:
    at = block_of(qt.value).bytes_at
    return lambda qt: at


@inline
def read_step(
    isa: Any, qt: Any, step: int, w: int, stride: int, blocks: int, room: int, turn: int
) -> None:  # fmt: skip
    """A quarter of a part's codes, and a block's scales, to the thread's ``room``."""
    nbytes, min_at, offset = _layout(qt)
    if _bytes_at(qt) == 0:
        above = simd.splat_i8x64(offset)
        for row in range(4 * step, 4 * step + 4):
            first = w + row * stride
            line = room + _CODES + turn % 2 * 2048 + 64 * row
            if blocks == PART:
                simd.store_i8x64(line, codes_of_pair(isa, qt, first, first + nbytes) - above)
                first += 2 * nbytes
                codes = codes_of_pair(isa, qt, first, first + nbytes) - above
                simd.store_i8x64(line + 1024, codes)
            else:
                for b in range(0, blocks, 2):
                    second = first + nbytes if b + 1 < blocks else 0
                    simd.store_i8x64(line, codes_of_pair(isa, qt, first, second) - above)
                    first += 2 * nbytes
                    line += 1024
    scales = room + _SCALES + turn % 4 * 512 + 64 * step
    d = simd.splat_f32x16(np.float32(0))
    m = simd.splat_f32x16(np.float32(0))
    # Of blocks that a row lacks the sums are left over from others: their scales are 0.
    if step < blocks:
        d = strided_scales(qt, w + step * nbytes, stride)
        if min_at != 0:
            m = strided_f16x16(w + step * nbytes + min_at, stride)
    simd.store_f32x16(scales, d)
    if min_at != 0:
        simd.store_f32x16(scales + 256, m)


@inline
def multiply_step(qt: Any, step: int, w: int, stride: int, x: int, room: int, turn: int) -> None:
    """Multiply a part's block into its tile of sums; ``x``: the part's activations as tiles."""
    nbytes, _, _ = _layout(qt)
    at, pitch = room + _CODES + turn % 2 * 2048 + step // 2 * 1024 + step % 2 * 32, 64
    if _bytes_at(qt) != 0:
        at, pitch = w + step * nbytes + _bytes_at(qt), stride
    _block(step, at, pitch, x + 512 * step)


@inline
def _block(step: int, at: int, pitch: int, x: int) -> None:
    if step == 0:
        tiles.block_0(at, pitch, x)
    elif step == 1:
        tiles.block_1(at, pitch, x)
    elif step == 2:
        tiles.block_2(at, pitch, x)
    else:
        tiles.block_3(at, pitch, x)


@inline
def store_step(step: int, room: int, turn: int) -> None:
    """The sums of a part's block, exact integers, to the thread's ``room``."""
    to = room + _SUMS + turn % 2 * 4096 + 1024 * step
    if step == 0:
        tiles.store_0(to)
    elif step == 1:
        tiles.store_1(to)
    elif step == 2:
        tiles.store_2(to)
    else:
        tiles.store_3(to)


@inline
def _scaled(sums: int, d: int, x_scale: Any, y: Any) -> Any:
    factor = simd.splat_f32x16(get_f32(d)) * x_scale
    return simd.fma_f32x16(simd.to_f32x16(simd.load_i32x16(sums)), factor, y)


@inline
def _least(m: int, x_sum: Any, y: Any) -> Any:
    return simd.fma_f32x16(simd.splat_f32x16(get_f32(m)), x_sum, y)


@inline
def add_step(
    qt: Any, step: int, x_scales: int, x_sums: int, to: int, room: int, turn: int
) -> None:  # fmt: skip
    """Add a part's products, a quarter of its rows, onto float32 ``to`` [16 rows][16 tokens].

    ``x_scales``, ``x_sums``: for each block the scales and the scaled sums of 16 tokens, zeros
    where there is no block.
    """
    _, min_at, _ = _layout(qt)
    s0, s1 = simd.load_f32x16(x_scales), simd.load_f32x16(x_scales + 64)
    s2, s3 = simd.load_f32x16(x_scales + 128), simd.load_f32x16(x_scales + 192)
    for row in range(4 * step, 4 * step + 4):
        sums = room + _SUMS + turn % 2 * 4096 + 64 * row
        d = room + _SCALES + turn % 4 * 512 + 4 * row
        y = simd.load_f32x16(to + 64 * row)
        if min_at != 0:
            y = _least(d + 256, simd.load_f32x16(x_sums), y)
            y = _least(d + 320, simd.load_f32x16(x_sums + 64), y)
            y = _least(d + 384, simd.load_f32x16(x_sums + 128), y)
            y = _least(d + 448, simd.load_f32x16(x_sums + 192), y)
        y = _scaled(sums, d, s0, y)
        y = _scaled(sums + 1024, d + 64, s1, y)
        y = _scaled(sums + 2048, d + 128, s2, y)
        y = _scaled(sums + 3072, d + 192, s3, y)
        simd.store_f32x16(to + 64 * row, y)


@inline
def ask_step(qt: Any, step: int, ahead: int) -> None:
    """Bring a quarter of a part's bytes as near as the second-level cache."""
    nbytes, _, _ = _layout(qt)
    for line in range(nbytes * step // 4, nbytes * (step + 1) // 4):
        simd.prefetch_l2(ahead + 64 * line)
