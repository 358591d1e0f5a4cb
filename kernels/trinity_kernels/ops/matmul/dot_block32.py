"""Dot products of blocks of 32 with one scale: two blocks per 64-byte vector.

Each of the three codes of activations of 19 bits is multiplied by the weights' codes. The offset of
unsigned codes times the block's scale is a minimum, as in Q4_1: it is multiplied by the sum of the
block's activations, which the form stores. The scales of 16 blocks are loaded and multiplied
together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots, memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.instructions import instructions
from trinity_kernels.lanes import tree_sum, zero_lanes
from trinity_kernels.ops.matmul.activations import (
    q8_groups,
    q8_scales,
    q8_sums,
    q19_middle,
    q19_number,
    q19_scales,
    q19_sums,
)
from trinity_kernels.ops.matmul.prefetch import AHEAD, prefetch_near
from trinity_kernels.ops.matmul.readers import (
    code,
    codes_of_pair,
    is_fine,
    minima_of_16,
    minima_of_few,
    minimum,
    minimum_at,
    nbytes,
    offset,
    scale,
    scales_of_16,
    scales_of_few,
    signed,
    top,
)
from trinity_kernels.tags import chosen, per_level


@instructions("f32x16", "f32x16", "literal")
def spread(builder: Any, scales: Any, pair: Any) -> Any:
    """Lane 2 p in lanes 0-7 and lane 2 p + 1 in lanes 8-15, p a literal."""
    p = pair
    return simd.shuffle(builder, scales, scales, [2 * p] * 8 + [2 * p + 1] * 8)


@inline
def _next(block: int, size: int) -> int:
    """The next block, which is not 0; the addition tells the compiler so."""
    return max(block + size, 4096)


@inline
def fine_products(isa: Any, qt: Any, codes: Any, start: Any, x: int, middle: int) -> Any:
    """``start`` + sums of four products of 64 codes and numbers of 19 bits, exact.

    ``middle``: the address of the middle codes; the ones follow at the same distance from it as it
    has from ``x``.
    """
    zero, eight = simd.splat_i32x16(0), simd.splat_i32x16(8)
    high, more = simd.load_i8x64(x), simd.load_i8x64(middle)
    ones = simd.load_i8x64(2 * middle - x)
    if top(qt) > 127:
        sums = byte_dots.dot_bytes(isa, zero, codes, high) << eight
        sums = byte_dots.dot_bytes(isa, sums, codes, more) << eight
        return byte_dots.dot_bytes(isa, sums + start, codes, ones)
    sums = byte_dots.dot_u8i8(isa, zero, codes, high) << eight
    sums = byte_dots.dot_u8i8(isa, sums, codes, more) << eight
    return byte_dots.dot_u8i8(isa, sums + start, codes, ones)


def _fine_pair(isa: Any, qt: Any, first: int, second: int, x: int, beside: int) -> Any:
    codes = codes_of_pair(isa, qt, first, second)
    return simd.to_f32x16(fine_products(isa, qt, codes, simd.splat_i32x16(0), x, beside))


def _unsigned_pair(isa: Any, qt: Any, first: int, second: int, x: int, beside: int) -> Any:
    zero = simd.splat_i32x16(0)
    return simd.to_f32x16(
        byte_dots.dot_u8i8(isa, zero, codes_of_pair(isa, qt, first, second), simd.load_i8x64(x))
    )


def _signed_pair(isa: Any, qt: Any, first: int, second: int, x: int, beside: int) -> Any:
    sums = simd.load_i32x16(beside)
    codes = codes_of_pair(isa, qt, first, second)
    return simd.to_f32x16(byte_dots.dot_i8i8_sums(isa, sums, codes, simd.load_i8x64(x)))


@chosen
def _pair(isa: Any, qt: Any, first: Any, second: Any, x: Any, beside: Any) -> Any:
    """The exact lanes of two blocks' products; ``beside``: the array of beside_at."""
    if is_fine(qt):
        return _fine_pair
    return _signed_pair if signed(qt) else _unsigned_pair


@inline
def scales_at(qt: Any, k: int) -> int:
    """Bytes from a row's codes to its scales."""
    if is_fine(qt):
        return q19_scales(k)
    return q8_scales(k)


@inline
def sums_at(qt: Any, k: int) -> int:
    """Bytes from a row's codes to its scaled sums."""
    if is_fine(qt):
        return q19_sums(k)
    return q8_sums(k)


@inline
def beside_at(qt: Any, k: int) -> int:
    """Bytes from a row's codes to the middle codes (q19), or to the negated sums of 4 (q8)."""
    if is_fine(qt):
        return q19_middle(k)
    return q8_groups(k)


@inline
def _last_pair(
    isa: Any, qt: Any, at: int, left: int, pair: int, both: Any, x: int, beside: int, acc: Any
) -> Any:
    """Add pair number ``pair`` of the ``left`` blocks at ``at``; the last may have one block."""
    first = at + 2 * pair * nbytes(qt)
    second = first + nbytes(qt)
    if left == 2 * pair + 1:
        second = 0
    lanes = _pair(isa, qt, first, second, x + 64 * pair, beside + 64 * pair)
    return simd.fma_f32x16(spread(both, pair), lanes, acc)


@inline
def dot_tail(isa: Any, qt: Any, w: int, x: int, k: int, acc: Any, least: Any, ahead: int) -> Any:
    """Add the blocks after the last whole 16 to the sums, and return the result.

    ``ahead``: bytes from the blocks to what is prefetched; 0 for none.
    """
    scales, sums, beside = x + scales_at(qt, k), x + sums_at(qt, k), x + beside_at(qt, k)
    size = nbytes(qt)
    done = k // 512 * 16
    left = k // 32 - done
    if left > 0:
        at = w + done * size
        if ahead != 0:
            prefetch_near(at + ahead, left * size)
        d = scales_of_few(qt, at, size, left)
        both = d * simd.load_f32x16(scales + 4 * done)
        if not signed(qt):
            m = d * simd.splat_f32x16(np.float32(-offset(qt)))
            if minimum_at(qt) != 0:
                m = minima_of_few(qt, at, size, left)
            least = simd.fma_f32x16(m, simd.load_f32x16(sums + 4 * done), least)
        c, g = x + 32 * done, beside + 32 * done
        acc = _last_pair(isa, qt, at, left, 0, both, c, g, acc)
        if left > 2:
            acc = _last_pair(isa, qt, at, left, 1, both, c, g, acc)
        if left > 4:
            acc = _last_pair(isa, qt, at, left, 2, both, c, g, acc)
        if left > 6:
            acc = _last_pair(isa, qt, at, left, 3, both, c, g, acc)
        if left > 8:
            acc = _last_pair(isa, qt, at, left, 4, both, c, g, acc)
        if left > 10:
            acc = _last_pair(isa, qt, at, left, 5, both, c, g, acc)
        if left > 12:
            acc = _last_pair(isa, qt, at, left, 6, both, c, g, acc)
        if left > 14:
            acc = _last_pair(isa, qt, at, left, 7, both, c, g, acc)
    if signed(qt):
        return simd.sum_f32x16(acc)
    return np.float32(simd.sum_f32x16(acc) + simd.sum_f32x16(least))


def _vector(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    acc = simd.splat_f32x16(np.float32(0))
    least = simd.splat_f32x16(np.float32(0))
    scales, sums, beside = x + scales_at(qt, k), x + sums_at(qt, k), x + beside_at(qt, k)
    size = nbytes(qt)
    for s in range(k // 512):
        at = w + 16 * size * s
        ahead = at + AHEAD
        d = scales_of_16(qt, at, size)
        both = d * simd.load_f32x16(scales + 64 * s)
        if not signed(qt):
            m = d * simd.splat_f32x16(np.float32(-offset(qt)))
            if minimum_at(qt) != 0:
                m = minima_of_16(qt, at, size)
            least = simd.fma_f32x16(m, simd.load_f32x16(sums + 64 * s), least)
        c = x + 512 * s
        g = beside + 512 * s
        two = 2 * size
        simd.prefetch(ahead)
        acc = simd.fma_f32x16(spread(both, 0), _pair(isa, qt, at, _next(at, size), c, g), acc)
        at += two
        simd.prefetch(ahead + two)
        acc = simd.fma_f32x16(
            spread(both, 1), _pair(isa, qt, at, _next(at, size), c + 64, g + 64), acc
        )
        at += two
        simd.prefetch(ahead + 2 * two)
        acc = simd.fma_f32x16(
            spread(both, 2), _pair(isa, qt, at, _next(at, size), c + 128, g + 128), acc
        )
        at += two
        simd.prefetch(ahead + 3 * two)
        acc = simd.fma_f32x16(
            spread(both, 3), _pair(isa, qt, at, _next(at, size), c + 192, g + 192), acc
        )
        at += two
        simd.prefetch(ahead + 4 * two)
        acc = simd.fma_f32x16(
            spread(both, 4), _pair(isa, qt, at, _next(at, size), c + 256, g + 256), acc
        )
        at += two
        simd.prefetch(ahead + 5 * two)
        acc = simd.fma_f32x16(
            spread(both, 5), _pair(isa, qt, at, _next(at, size), c + 320, g + 320), acc
        )
        at += two
        simd.prefetch(ahead + 6 * two)
        acc = simd.fma_f32x16(
            spread(both, 6), _pair(isa, qt, at, _next(at, size), c + 384, g + 384), acc
        )
        at += two
        simd.prefetch(ahead + 7 * two)
        acc = simd.fma_f32x16(
            spread(both, 7), _pair(isa, qt, at, _next(at, size), c + 448, g + 448), acc
        )
    return dot_tail(isa, qt, w, x, k, acc, least, AHEAD)


@per_level(_vector)
def dot_block32(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    lanes = zero_lanes()
    least = zero_lanes()
    scales, sums = x + scales_at(qt, k), x + sums_at(qt, k)
    for b in range(k // 32):
        block = w + b * nbytes(qt)
        d = scale(qt, block, 0)
        both = np.float32(d * memory.get_f32(scales + 4 * b))
        for g in range(8):
            total = 0
            for t in range(4):
                a = int(memory.get_i8(x + 32 * b + 4 * g + t))
                if is_fine(qt):
                    a = q19_number(x, k, 32 * b + 4 * g + t)
                total += int(code(qt, block, 4 * g + t)) * a
            lane = 8 * (b % 2) + g
            lanes[lane] = memory.fma_f32(both, np.float32(total), lanes[lane])
        m = np.float32(d * np.float32(-offset(qt)))
        if minimum_at(qt) != 0:
            m = minimum(qt, block, 0)
        if not signed(qt):
            least[b % 16] = memory.fma_f32(m, memory.get_f32(sums + 4 * b), least[b % 16])
    if signed(qt):
        return tree_sum(lanes)
    return np.float32(tree_sum(lanes) + tree_sum(least))
