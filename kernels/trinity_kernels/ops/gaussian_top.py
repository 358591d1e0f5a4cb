"""x = max(x - t, 0), where t = mean(x) + FACTOR * std(x) of each row.

If a row's values are normal, t leaves a share of the largest ones. std is that of all values: the
mean square of x - mean(x).
Shapes: X is M rows of K float32, STRIDE bytes apart; FACTOR is the bits of a float64.
Numerics: sums as in norm.py; each other step is rounded to float32.
Source: transformers' Gemma3nTextMLP. llama.cpp divides by K - 1 in std.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_f64, get_i64, set_f32, slots_of
from trinity_kernels.ops.norm import row_sum, sum_of_squares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

X, STRIDE, K, FACTOR = range(3, 7)
_ZERO = np.float32(0)


@inline
def _one_by_one(x: int, least: Any, first: int, last: int) -> None:
    for i in range(first, last):
        y = np.float32(get_f32(x + 4 * i) - least)
        set_f32(x + 4 * i, y if y > _ZERO else _ZERO)


def _above(isa: Any, x: int, least: Any, k: int) -> None:
    _one_by_one(x, least, 0, k)


def _above_vector(isa: Any, x: int, least: Any, k: int) -> None:
    whole = k // 16 * 16
    for i in range(0, whole, 16):
        y = simd.load_f32x16(x + 4 * i) - simd.splat_f32x16(least)
        simd.store_f32x16(x + 4 * i, simd.max_f32x16(y, simd.splat_f32x16(_ZERO)))
    _one_by_one(x, least, whole, k)


per_level(_above_vector)(_above)


@kernel
def gaussian_top(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; a row belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, stride, k = slots_of(record, (X, STRIDE, K))
    factor = np.float32(get_f64(record + 8 * FACTOR))
    for t in range(thread, tokens, positive(threads)):
        row = x + t * stride
        mean = np.float32(row_sum(isa, row, k) / np.float32(k))
        square = np.float32(sum_of_squares(isa, row, mean, k) / np.float32(k))
        deviation = np.float32(np.float32(np.sqrt(square)) * factor)
        _above(isa, row, np.float32(mean + deviation), k)
