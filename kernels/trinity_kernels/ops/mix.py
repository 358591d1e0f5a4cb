"""out = the weighted sum of the rows of a token's experts; with ADD 1 it is added to out.

Shapes: X is rows of K float32 in the order of expert_rows.py; PLACES is int32 (M, PER_TOKEN),
WEIGHTS float32 (M, PER_TOKEN), OUT M rows of K float32. Threads share whole tokens, or the elements
of a single token in multiples of 64.
Numerics: rows are summed in the order of choice, each product and sum rounded, then added to out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i32, get_i64, set_f32, slots_of
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

X, X_STRIDE, OUT, OUT_STRIDE, K, PER_TOKEN, PLACES, WEIGHTS, ADD = range(3, 12)


@inline
def _elements(
    x: int, stride: int, places: int, weights: int, count: int, out: int, first: int, last: int,
    add: int,
) -> None:  # fmt: skip
    for i in range(first, last):
        total = np.float32(0)
        for slot in range(count):
            row = x + int(get_i32(places + 4 * slot)) * stride
            part = np.float32(get_f32(weights + 4 * slot) * get_f32(row + 4 * i))
            total = np.float32(total + part)
        if add != 0:
            total = np.float32(get_f32(out + 4 * i) + total)
        set_f32(out + 4 * i, total)


def _range(
    isa: Any, x: int, stride: int, places: int, weights: int, count: int, out: int, first: int,
    last: int, add: int,
) -> None:  # fmt: skip
    _elements(x, stride, places, weights, count, out, first, last, add)


def _vector_range(
    isa: Any, x: int, stride: int, places: int, weights: int, count: int, out: int, first: int,
    last: int, add: int,
) -> None:  # fmt: skip
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        total = simd.splat_f32x16(np.float32(0))
        for slot in range(count):
            row = x + int(get_i32(places + 4 * slot)) * stride
            weight = simd.splat_f32x16(get_f32(weights + 4 * slot))
            total = total + weight * simd.load_f32x16(row + 4 * i)
        if add != 0:
            total = simd.load_f32x16(out + 4 * i) + total
        simd.store_f32x16(out + 4 * i, total)
    _elements(x, stride, places, weights, count, out, whole, last, add)


per_level(_vector_range)(_range)


@kernel
def mix(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, stride, k, count, add = slots_of(record, (X, X_STRIDE, K, PER_TOKEN, ADD))
    first = 0
    last = k
    begin = thread
    step = threads
    if tokens == 1:
        blocks = (k + 63) // 64
        first = min(k, blocks * thread // threads * 64)
        last = min(k, blocks * (thread + 1) // threads * 64)
        begin = 0
        step = 1
    for t in range(begin, tokens, positive(step)):
        places = get_i64(record + 8 * PLACES) + 4 * t * count
        weights = get_i64(record + 8 * WEIGHTS) + 4 * t * count
        out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE)
        _range(isa, x, stride, places, weights, count, out, first, last, add)
