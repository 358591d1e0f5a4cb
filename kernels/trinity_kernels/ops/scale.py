"""x = x * FACTOR, element by element.

Shapes: X is M rows of K float32, STRIDE bytes apart; FACTOR is the bits of a float64.
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

X, STRIDE, K, FACTOR = range(3, 7)


@inline
def _one_by_one(x: int, factor: Any, first: int, last: int) -> None:
    for i in range(first, last):
        set_f32(x + 4 * i, np.float32(get_f32(x + 4 * i) * factor))


def _range(isa: Any, x: int, factor: Any, first: int, last: int) -> None:
    _one_by_one(x, factor, first, last)


def _range_vector(isa: Any, x: int, factor: Any, first: int, last: int) -> None:
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        y = simd.load_f32x16(x + 4 * i) * simd.splat_f32x16(factor)
        simd.store_f32x16(x + 4 * i, y)
    _one_by_one(x, factor, whole, last)


per_level(_range_vector)(_range)


@kernel
def scale(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, stride, k = slots_of(record, (X, STRIDE, K))
    factor = np.float32(get_f64(record + 8 * FACTOR))
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        _range(isa, x + t * stride, factor, first, last)
