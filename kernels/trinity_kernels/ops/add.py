"""out = (out + x) * FACTOR, element by element, for some parts of out.

Shapes: X is M rows of K float32, X_STRIDE bytes apart; OUT is the first of GROUPS parts of K
float32 that follow each other, in M rows OUT_STRIDE bytes apart. FACTOR is the bits of a float64.
Numerics: the sum, then the product, each rounded to float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_f64, get_i64, set_f32, slots_of
from trinity_kernels.ops.shares import shares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

X, X_STRIDE, OUT, OUT_STRIDE, K, GROUPS, FACTOR = range(3, 10)


@inline
def _one_by_one(x: int, out: int, factor: Any, first: int, last: int) -> None:
    for i in range(first, last):
        y = np.float32(get_f32(out + 4 * i) + get_f32(x + 4 * i))
        set_f32(out + 4 * i, np.float32(y * factor))


def _range(isa: Any, x: int, out: int, factor: Any, first: int, last: int) -> None:
    _one_by_one(x, out, factor, first, last)


def _range_vector(isa: Any, x: int, out: int, factor: Any, first: int, last: int) -> None:
    whole = first + (last - first) // 16 * 16
    factors = simd.splat_f32x16(factor)
    for i in range(first, whole, 16):
        y = simd.load_f32x16(out + 4 * i) + simd.load_f32x16(x + 4 * i)
        simd.store_f32x16(out + 4 * i, y * factors)
    _one_by_one(x, out, factor, whole, last)


per_level(_range_vector)(_range)


@kernel
def add(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, x_stride, out, out_stride = slots_of(record, (X, X_STRIDE, OUT, OUT_STRIDE))
    k, groups = slots_of(record, (K, GROUPS))
    factor = np.float32(get_f64(record + 8 * FACTOR))
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        for g in range(groups):
            _range(isa, x + t * x_stride, out + t * out_stride + 4 * g * k, factor, first, last)
