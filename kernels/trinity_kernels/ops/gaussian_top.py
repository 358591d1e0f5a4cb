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
from trinity_kernels.memory import get_f64, get_i64, slots_of
from trinity_kernels.ops.in_place import in_place
from trinity_kernels.ops.norm import row_sum, sum_of_squares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive

X, STRIDE, K, FACTOR = range(3, 7)
_ZERO = np.float32(0)


@inline
def _above(y: Any, least: Any) -> Any:
    above = np.float32(y - least)
    return above if above > _ZERO else _ZERO


@inline
def _above_f32x16(y: Any, least: Any) -> Any:
    return simd.max_f32x16(y - simd.splat_f32x16(least), simd.splat_f32x16(_ZERO))


_cut = in_place(_above, _above_f32x16)


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
        _cut(isa, row, np.float32(mean + deviation), 0, k)
