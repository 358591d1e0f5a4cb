"""out = H (f * x), or f * (H x) with AFTER 1, in blocks of a row: a fast Walsh-Hadamard transform.

H is the Sylvester matrix, H[i, j] = (-1)^popcount(i & j), without its factor 1 / sqrt(BLOCK), which
belongs into FACTORS. Shapes: X and OUT, which may be X, are M rows of K float32, STRIDE bytes
apart; FACTORS is K float32. BLOCK is a power of 2 that divides K.
Numerics: pairs of elements at distances 1, 2, 4 ... become their sum and their difference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import get_f32, get_i64, set_f32
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

X, STRIDE, OUT, OUT_STRIDE, FACTORS, K, BLOCK, AFTER = range(3, 11)


@instructions("f32x16", "f32x16")
def _sums_of_16(builder: Any, value: Any) -> Any:
    """The sums and differences of pairs at the distances 1, 2, 4 and 8."""
    for distance in (1, 2, 4, 8):
        others = simd.shuffle(builder, value, value, [i ^ distance for i in range(16)])
        signs = ir.Constant(simd.F32X16.ir, [-1.0 if i & distance else 1.0 for i in range(16)])
        value = builder.fadd(others, builder.fmul(value, signs))
    return value


@inline
def _scaled(x: int, factors: int, out: int, block: int) -> None:
    for i in range(0, 4 * block, 4):
        set_f32(out + i, np.float32(get_f32(x + i) * get_f32(factors + i)))


@inline
def _copied(x: int, out: int, block: int) -> None:
    for i in range(0, 4 * block, 4):
        set_f32(out + i, get_f32(x + i))


@inline
def _one_by_one(x: int, factors: int, out: int, block: int, after: int) -> None:
    if after == 0:
        _scaled(x, factors, out, block)
    else:
        _copied(x, out, block)
    distance = 1
    while distance < block:
        for first in range(0, block, 2 * distance):
            for i in range(first, first + distance):
                a, b = get_f32(out + 4 * i), get_f32(out + 4 * (i + distance))
                set_f32(out + 4 * i, np.float32(a + b))
                set_f32(out + 4 * (i + distance), np.float32(a - b))
        distance *= 2
    if after != 0:
        _scaled(out, factors, out, block)


def _block(isa: Any, x: int, factors: int, out: int, block: int, after: int) -> None:
    _one_by_one(x, factors, out, block, after)


def _vector_block(isa: Any, x: int, factors: int, out: int, block: int, after: int) -> None:
    if block < 16:
        _one_by_one(x, factors, out, block, after)
        return
    for i in range(0, 4 * block, 64):
        value = simd.load_f32x16(x + i)
        if after == 0:
            value = value * simd.load_f32x16(factors + i)
        simd.store_f32x16(out + i, _sums_of_16(value))
    distance = 16
    while distance < block:
        for first in range(0, block, 2 * distance):
            for i in range(out + 4 * first, out + 4 * (first + distance), 64):
                a, b = simd.load_f32x16(i), simd.load_f32x16(i + 4 * distance)
                simd.store_f32x16(i, a + b)
                simd.store_f32x16(i + 4 * distance, a - b)
        distance *= 2
    if after != 0:
        for i in range(0, 4 * block, 64):
            simd.store_f32x16(out + i, simd.load_f32x16(out + i) * simd.load_f32x16(factors + i))


per_level(_vector_block)(_block)


@kernel
def hadamard(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Transform; a block belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    block = positive(get_i64(record + 8 * BLOCK))
    after = get_i64(record + 8 * AFTER)
    blocks = positive(get_i64(record + 8 * K) // block)
    for item in range(thread, tokens * blocks, positive(threads)):
        t = item // blocks
        at = 4 * block * (item % blocks)
        x = get_i64(record + 8 * X) + t * get_i64(record + 8 * STRIDE) + at
        out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + at
        _block(isa, x, get_i64(record + 8 * FACTORS) + at, out, block, after)
