"""Dot products of ternary weights: exact sums of a row, or of blocks of 256 with a scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots, memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.lanes import zero_lanes
from trinity_kernels.ops.matmul.activations import (
    ternary_place,
    ternary_result,
    ternary_sums,
    ternary_tail,
)
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import code, nbytes, scale_at, ternary_codes, ternary_packed
from trinity_kernels.ops.matmul.ternary_blocks import (
    add_1_block,
    add_4_blocks,
    end_blocks,
    no_blocks,
)
from trinity_kernels.tags import per_level

# -- one scale for the tensor ----------------------------------------------------------------------


@inline
def _add_shifted(isa: Any, qt: Any, a0: Any, a1: Any, block: int, left: int, x: int) -> Any:
    simd.prefetch(block + AHEAD)
    first, second, third, fourth = ternary_codes(qt, block, left)
    a0 = byte_dots.dot_u8i8(isa, a0, first, simd.load_i8x64(x))
    a1 = byte_dots.dot_u8i8(isa, a1, second, simd.load_i8x64(x + 64))
    a0 = byte_dots.dot_u8i8(isa, a0, third, simd.load_i8x64(x + 128))
    a1 = byte_dots.dot_u8i8(isa, a1, fourth, simd.load_i8x64(x + 192))
    return a0, a1


@inline
def _add_masked(
    isa: Any, qt: Any, a0: Any, a1: Any, a2: Any, a3: Any, block: int, left: int, x: int
) -> Any:
    simd.prefetch(block + AHEAD)
    v = ternary_packed(qt, block, left)
    a0 = byte_dots.dot_u8i8(isa, a0, v & simd.splat_i8x64(192), simd.load_i8x64(x))
    a1 = byte_dots.dot_u8i8(isa, a1, v & simd.splat_i8x64(48), simd.load_i8x64(x + 64))
    a2 = byte_dots.dot_u8i8(isa, a2, v & simd.splat_i8x64(12), simd.load_i8x64(x + 128))
    a3 = byte_dots.dot_u8i8(isa, a3, v & simd.splat_i8x64(3), simd.load_i8x64(x + 192))
    return a0, a1, a2, a3


def _codes_shifted(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """Sums of products of codes shifted to 0 .. 3, for levels whose unsigned operand is small."""
    a0 = simd.splat_i32x16(0)
    a1 = simd.splat_i32x16(0)
    whole = k // 256
    for c in range(whole):
        a0, a1 = _add_shifted(isa, qt, a0, a1, w + 64 * c, 256, x + 256 * c)
    if k % 256 > 0:
        a0, a1 = _add_shifted(isa, qt, a0, a1, w + 64 * whole, k % 256, x + 256 * whole)
    return ternary_result(simd.sum_i32x16(a0 + a1), x, k)


def _codes_masked(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """Sums of products of masked codes, 64, 16, 4 and 1 times too large, each in its own sum."""
    a0 = simd.splat_i32x16(0)
    a1 = simd.splat_i32x16(0)
    a2 = simd.splat_i32x16(0)
    a3 = simd.splat_i32x16(0)
    whole = k // 256
    for c in range(whole):
        a0, a1, a2, a3 = _add_masked(isa, qt, a0, a1, a2, a3, w + 64 * c, 256, x + 256 * c)
    if k % 256 > 0:
        block, p = w + 64 * whole, x + 256 * whole
        a0, a1, a2, a3 = _add_masked(isa, qt, a0, a1, a2, a3, block, k % 256, p)
    # Each lane is a multiple of its factor, so the arithmetic shifts are exact.
    total = simd.ashr_i32x16(a0, 6) + simd.ashr_i32x16(a1, 4) + simd.ashr_i32x16(a2, 2) + a3
    return ternary_result(simd.sum_i32x16(total), x, k)


@per_level(_codes_shifted, avx512vnni=_codes_masked, amx=_codes_masked)
def dot_codes(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    total = 0
    for e in range(k):
        a = int(memory.get_i8(x + ternary_place(e)))
        total += int(code(qt, w + e // 256 * 64, e % 256)) * a
    return ternary_result(total, x, k)


# -- a scale for each block ------------------------------------------------------------------------


@inline
def _products(isa: Any, qt: Any, block: int, x: int) -> Any:
    """The lanes of the products of a block and 256 activations."""
    simd.prefetch(block + AHEAD)
    first, second, third, fourth = ternary_codes(qt, block, 256)
    total = byte_dots.dot_u8i8(isa, simd.splat_i32x16(0), first, simd.load_i8x64(x))
    total = byte_dots.dot_u8i8(isa, total, second, simd.load_i8x64(x + 64))
    total = byte_dots.dot_u8i8(isa, total, third, simd.load_i8x64(x + 128))
    return byte_dots.dot_u8i8(isa, total, fourth, simd.load_i8x64(x + 192))


def _blocks(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    y = no_blocks()
    sums = x + ternary_sums(k)
    size, at = nbytes(qt), scale_at(qt)
    blocks = k // 256
    for b in range(0, blocks - 3, 4):
        block, p = w + size * b, x + 256 * b
        first = _products(isa, qt, block, p)
        second = _products(isa, qt, block + size, p + 256)
        third = _products(isa, qt, block + 2 * size, p + 512)
        fourth = _products(isa, qt, block + 3 * size, p + 768)
        y = add_4_blocks(y, first, second, third, fourth, sums + 4 * b, block + at, size)
    left = blocks % 4
    b = blocks - left
    block, p, sums = w + size * b, x + 256 * b, sums + 4 * b
    if left > 0:
        y = add_1_block(y, 0, _products(isa, qt, block, p), sums, block + at)
    if left > 1:
        block += size
        y = add_1_block(y, 1, _products(isa, qt, block, p + 256), sums + 4, block + at)
    if left > 2:
        block += size
        y = add_1_block(y, 2, _products(isa, qt, block, p + 512), sums + 8, block + at)
    return np.float32(end_blocks(y) / memory.get_f32(x + ternary_tail(k)))


@per_level(_blocks)
def dot_blocks(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    y = zero_lanes()
    size, at = nbytes(qt), scale_at(qt)
    for b in range(k // 256):
        block = w + size * b
        total = 0
        for e in range(256):
            a = int(memory.get_i8(x + 256 * b + ternary_place(e)))
            total += (int(code(qt, block, e)) - 1) * a
        d = memory.get_f16(block + at)
        y[b % 4] = memory.fma_f32(d, np.float32(total), y[b % 4])
    even, odd = np.float32(y[0] + y[2]), np.float32(y[1] + y[3])
    return np.float32(np.float32(even + odd) / memory.get_f32(x + ternary_tail(k)))
