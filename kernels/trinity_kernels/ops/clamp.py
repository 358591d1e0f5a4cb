"""out = x limited to LOW .. HIGH, element by element; NaN stays NaN.

Shapes: X and OUT, which may be X, are M rows of K float32, X_STRIDE and OUT_STRIDE bytes apart.
LOW and HIGH are the bits of float64, LOW <= HIGH; they may be infinite.
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

X, X_STRIDE, OUT, OUT_STRIDE, K, LOW, HIGH = range(3, 10)


@inline
def _one_by_one(x: int, out: int, low: Any, high: Any, first: int, last: int) -> None:
    for i in range(first, last):
        y = get_f32(x + 4 * i)
        y = high if y > high else y
        y = low if y < low else y
        set_f32(out + 4 * i, y)


def _range(isa: Any, x: int, out: int, low: Any, high: Any, first: int, last: int) -> None:
    _one_by_one(x, out, low, high, first, last)


def _range_vector(isa: Any, x: int, out: int, low: Any, high: Any, first: int, last: int) -> None:
    whole = first + (last - first) // 16 * 16
    lowest, highest = simd.splat_f32x16(low), simd.splat_f32x16(high)
    for i in range(first, whole, 16):
        y = simd.min_f32x16(highest, simd.load_f32x16(x + 4 * i))
        simd.store_f32x16(out + 4 * i, simd.max_f32x16(lowest, y))
    _one_by_one(x, out, low, high, whole, last)


per_level(_range_vector)(_range)


@kernel
def clamp(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, x_stride, out, out_stride, k = slots_of(record, (X, X_STRIDE, OUT, OUT_STRIDE, K))
    low, high = np.float32(get_f64(record + 8 * LOW)), np.float32(get_f64(record + 8 * HIGH))
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        _range(isa, x + t * x_stride, out + t * out_stride, low, high, first, last)
