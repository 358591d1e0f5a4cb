"""sums += x^2 over all rows of x, column by column: what importance matrices are made of.

Shapes: X M rows of K float32; SUMS K + 1 float64: the sums of the columns, then how many rows they
are of. A column belongs to one thread, and its rows are added in order.
Numerics: a float32's square is exact in float64 and each sum is rounded once, so levels, thread
counts and the cutting of a text into steps leave the bits alone. What is not finite stays visible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import kernel
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_f32, get_f64, get_i64, set_f64
from trinity_kernels.record import ROWS
from trinity_kernels.tags import per_level

if not jit_disabled():
    from trinity_kernels import simd

X, X_STRIDE, SUMS, K = range(3, 7)
LINE = 8  # float64s of a cache line: threads share none


def _add_row(isa: Any, x: int, sums: int, first: int, last: int) -> None:
    for i in range(first, last):
        v = np.float64(get_f32(x + 4 * i))
        set_f64(sums + 8 * i, get_f64(sums + 8 * i) + v * v)


def _vector_add_row(isa: Any, x: int, sums: int, first: int, last: int) -> None:
    whole = last // LINE * LINE
    for i in range(first, whole, LINE):
        v = simd.load_f32x8_as_f64(x + 4 * i)
        simd.store_f64x8(sums + 8 * i, simd.load_f64x8(sums + 8 * i) + v * v)
    for i in range(max(first, whole), last):
        v = np.float64(get_f32(x + 4 * i))
        set_f64(sums + 8 * i, get_f64(sums + 8 * i) + v * v)


per_level(_vector_add_row)(_add_row)


@kernel
def add_squares(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k = get_i64(record + 8 * K)
    sums = get_i64(record + 8 * SUMS)
    lines = (k + LINE - 1) // LINE
    first = lines * thread // threads * LINE
    last = min(k, lines * (thread + 1) // threads * LINE)
    for t in range(tokens):
        x = get_i64(record + 8 * X) + t * get_i64(record + 8 * X_STRIDE)
        _add_row(isa, x, sums, first, last)
    if thread == 0:
        set_f64(sums + 8 * k, get_f64(sums + 8 * k) + np.float64(tokens))
