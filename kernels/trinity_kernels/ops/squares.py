"""sums += x^2 for each column, over all rows of x, for importance matrices.

Shapes: X is M rows of K float32, SUMS K + 1 float64: the sums of the columns and the number of
rows. A column belongs to one thread, and its rows are added in order.
Numerics: the square of a float32 is exact in float64 and each sum is rounded once, so the bits do
not depend on the level, the threads or the steps. Values that are not finite remain visible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_f64, get_i32, get_i64, set_f64
from trinity_kernels.ops.expert_rows import ACTIVE, COUNT, EXPERT, FIRST_ROW, group_at
from trinity_kernels.record import ROWS
from trinity_kernels.tags import per_level

X, X_STRIDE, SUMS, K = range(3, 7)
GROUPS, INDEX = range(7, 9)  # of add_expert_squares
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


@inline
def _add_rows(
    isa: Any, record: int, x: int, index: int, sums: int, count: int, thread: int, threads: int
) -> None:
    """Add a thread's columns of ``count`` rows: those from ``x`` on, or those in ``index``."""
    k = get_i64(record + 8 * K)
    lines = (k + LINE - 1) // LINE
    first = lines * thread // threads * LINE
    last = min(k, lines * (thread + 1) // threads * LINE)
    for t in range(count):
        row = t
        if index != 0:
            row = int(get_i32(index + 4 * t))
        _add_row(isa, x + row * get_i64(record + 8 * X_STRIDE), sums, first, last)
    if thread == 0:
        set_f64(sums + 8 * k, get_f64(sums + 8 * k) + np.float64(count))


@kernel
def add_squares(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    sums = get_i64(record + 8 * SUMS)
    _add_rows(isa, record, get_i64(record + 8 * X), 0, sums, tokens, thread, threads)


@kernel
def add_expert_squares(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Add the rows of each expert (GROUPS, expert_rows.py) to the expert's K + 1 sums.

    INDEX is 0, or int32: the token of each expert's row, if X has the rows of tokens.
    """
    groups = get_i64(record + 8 * GROUPS)
    index = get_i64(record + 8 * INDEX)
    for number in range(get_i64(groups + 8 * ACTIVE)):
        group = group_at(groups, number)
        row = get_i64(group + 8 * FIRST_ROW)
        expert = get_i64(group + 8 * EXPERT)
        sums = get_i64(record + 8 * SUMS) + 8 * expert * (get_i64(record + 8 * K) + 1)
        x = get_i64(record + 8 * X)
        some = 0
        if index != 0:
            some = index + 4 * row
        else:
            x += row * get_i64(record + 8 * X_STRIDE)
        count = get_i64(group + 8 * COUNT)
        _add_rows(isa, record, x, some, sums, count, thread, threads)
