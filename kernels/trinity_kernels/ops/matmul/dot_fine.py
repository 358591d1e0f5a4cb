"""Dot products of blocks of 32 with activations of 16 bits: two rows of codes, the finer behind.

As dot_block32.py of unsigned codes, which are read once and multiplied by both rows. Each row has
its own lanes, added at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import inline
from trinity_kernels.isa import jit_disabled
from trinity_kernels.lanes import tree_sum
from trinity_kernels.ops.matmul.activations import q8_scales, q8_sums, q16_rest
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import code, nbytes, offset, scale
from trinity_kernels.tags import per_level

if not jit_disabled():
    from trinity_kernels import byte_dots, simd
    from trinity_kernels.ops.matmul.dot_block32 import lane, spread
    from trinity_kernels.ops.matmul.readers import codes_of_pair, scales_of_16, scales_of_few

    @inline
    def _products(isa: Any, codes: Any, x: int) -> Any:
        zero = simd.splat_i32x16(0)
        return simd.to_f32x16(byte_dots.dot_u8i8(isa, zero, codes, simd.load_i8x64(x)))


def _vector(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    coarse = simd.splat_f32x16(np.float32(0))
    fine = simd.splat_f32x16(np.float32(0))
    least = simd.splat_f32x16(np.float32(0))
    scales, sums, rest = x + q8_scales(k), x + q8_sums(k), q16_rest(k)
    below = simd.splat_f32x16(np.float32(-offset(qt)))
    size = nbytes(qt)
    two = 2 * size
    for s in range(k // 512):
        at = w + 16 * size * s
        ahead = at + AHEAD
        d = scales_of_16(qt, at, size)
        m = d * below
        least = simd.fma_f32x16(m, simd.load_f32x16(sums + 64 * s), least)
        least = simd.fma_f32x16(m, simd.load_f32x16(sums + rest + 64 * s), least)
        first = d * simd.load_f32x16(scales + 64 * s)
        second = d * simd.load_f32x16(scales + rest + 64 * s)
        c = x + 512 * s
        simd.prefetch(ahead)
        codes = codes_of_pair(isa, qt, at, at + size)
        coarse = simd.fma_f32x16(spread(first, 0), _products(isa, codes, c), coarse)
        fine = simd.fma_f32x16(spread(second, 0), _products(isa, codes, c + rest), fine)
        at += two
        simd.prefetch(ahead + two)
        codes = codes_of_pair(isa, qt, at, at + size)
        coarse = simd.fma_f32x16(spread(first, 1), _products(isa, codes, c + 64), coarse)
        fine = simd.fma_f32x16(spread(second, 1), _products(isa, codes, c + rest + 64), fine)
        at += two
        simd.prefetch(ahead + 2 * two)
        codes = codes_of_pair(isa, qt, at, at + size)
        coarse = simd.fma_f32x16(spread(first, 2), _products(isa, codes, c + 128), coarse)
        fine = simd.fma_f32x16(spread(second, 2), _products(isa, codes, c + rest + 128), fine)
        at += two
        simd.prefetch(ahead + 3 * two)
        codes = codes_of_pair(isa, qt, at, at + size)
        coarse = simd.fma_f32x16(spread(first, 3), _products(isa, codes, c + 192), coarse)
        fine = simd.fma_f32x16(spread(second, 3), _products(isa, codes, c + rest + 192), fine)
        at += two
        simd.prefetch(ahead + 4 * two)
        codes = codes_of_pair(isa, qt, at, at + size)
        coarse = simd.fma_f32x16(spread(first, 4), _products(isa, codes, c + 256), coarse)
        fine = simd.fma_f32x16(spread(second, 4), _products(isa, codes, c + rest + 256), fine)
        at += two
        simd.prefetch(ahead + 5 * two)
        codes = codes_of_pair(isa, qt, at, at + size)
        coarse = simd.fma_f32x16(spread(first, 5), _products(isa, codes, c + 320), coarse)
        fine = simd.fma_f32x16(spread(second, 5), _products(isa, codes, c + rest + 320), fine)
        at += two
        simd.prefetch(ahead + 6 * two)
        codes = codes_of_pair(isa, qt, at, at + size)
        coarse = simd.fma_f32x16(spread(first, 6), _products(isa, codes, c + 384), coarse)
        fine = simd.fma_f32x16(spread(second, 6), _products(isa, codes, c + rest + 384), fine)
        at += two
        simd.prefetch(ahead + 7 * two)
        codes = codes_of_pair(isa, qt, at, at + size)
        coarse = simd.fma_f32x16(spread(first, 7), _products(isa, codes, c + 448), coarse)
        fine = simd.fma_f32x16(spread(second, 7), _products(isa, codes, c + rest + 448), fine)
    done = k // 512 * 16
    left = k // 32 - done
    if left > 0:
        at = w + done * size
        d = scales_of_few(qt, at, size, left)
        m = d * below
        least = simd.fma_f32x16(m, simd.load_f32x16(sums + 4 * done), least)
        least = simd.fma_f32x16(m, simd.load_f32x16(sums + rest + 4 * done), least)
        first = d * simd.load_f32x16(scales + 4 * done)
        second = d * simd.load_f32x16(scales + rest + 4 * done)
        for j in range((left + 1) // 2):
            other = at + size
            if 2 * j + 1 == left:
                other = 0
            c = x + 32 * done + 64 * j
            codes = codes_of_pair(isa, qt, at, other)
            factor = simd.pair_f32x16(lane(first, 2 * j), lane(first, 2 * j + 1))
            coarse = simd.fma_f32x16(factor, _products(isa, codes, c), coarse)
            factor = simd.pair_f32x16(lane(second, 2 * j), lane(second, 2 * j + 1))
            fine = simd.fma_f32x16(factor, _products(isa, codes, c + rest), fine)
            at += two
    both = np.float32(simd.sum_f32x16(coarse) + simd.sum_f32x16(fine))
    return np.float32(both + simd.sum_f32x16(least))


@inline
def _sum_of_four(qt: Any, block: int, x: int, e: int) -> int:
    total = 0
    for i in range(e, e + 4):
        total += int(code(qt, block, i)) * int(memory.get_i8(x + i))
    return total


@per_level(_vector)
def dot_fine(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py; of types whose activations are q16."""
    coarse = np.zeros(16, np.float32)
    fine = np.zeros(16, np.float32)
    least = np.zeros(16, np.float32)
    scales, sums, rest = x + q8_scales(k), x + q8_sums(k), q16_rest(k)
    for b in range(k // 32):
        block = w + b * nbytes(qt)
        d = scale(qt, block, 0)
        first = np.float32(d * memory.get_f32(scales + 4 * b))
        second = np.float32(d * memory.get_f32(scales + rest + 4 * b))
        for g in range(8):
            at = 8 * (b % 2) + g
            total = _sum_of_four(qt, block, x + 32 * b, 4 * g)
            coarse[at] = memory.fma_f32(first, np.float32(total), coarse[at])
            total = _sum_of_four(qt, block, x + rest + 32 * b, 4 * g)
            fine[at] = memory.fma_f32(second, np.float32(total), fine[at])
        m = np.float32(d * np.float32(-offset(qt)))
        at = b % 16
        least[at] = memory.fma_f32(m, memory.get_f32(sums + 4 * b), least[at])
        least[at] = memory.fma_f32(m, memory.get_f32(sums + rest + 4 * b), least[at])
    both = np.float32(tree_sum(coarse) + tree_sum(fine))
    return np.float32(both + tree_sum(least))
