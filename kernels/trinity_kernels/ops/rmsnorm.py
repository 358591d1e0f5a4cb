"""out = x / sqrt(mean(x^2) + eps) * weight, row by row, or that added onto out.

Shapes: X M rows of K float32, WEIGHT K float32, OUT M rows of K float32 (may be X). With GROUPS > 1
a row holds that many vectors of K, each normalized on its own by one weight (per-head norms).
INDEX, where not 0, is the address of M int32: row i is taken from x's row INDEX[i]. ADD: 1 adds.
Numerics: the squares are summed in 16 lanes and one tree; x * (1 / sqrt(...)) * weight, so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.isa import jit_disabled
from trinity_kernels.lanes import tree_sum
from trinity_kernels.memory import get_f32, get_f64, get_i32, get_i64, set_f32
from trinity_kernels.record import ROWS
from trinity_kernels.tags import per_level

if not jit_disabled():
    from trinity_kernels import simd

X, X_STRIDE, WEIGHT, OUT, OUT_STRIDE, K, EPS, GROUPS, INDEX, ADD = range(3, 13)


def _sum_of_squares(isa: Any, x: int, k: int) -> Any:
    lanes = np.zeros(16, np.float32)
    for i in range(k):
        v = get_f32(x + 4 * i)
        lanes[i % 16] = np.float32(lanes[i % 16] + np.float32(v * v))
    return tree_sum(lanes)


def _vector_sum_of_squares(isa: Any, x: int, k: int) -> Any:
    acc = simd.splat_f32x16(np.float32(0))
    for i in range(k // 16):
        v = simd.load_f32x16(x + 64 * i)
        acc = acc + v * v
    if k % 16 != 0:
        v = simd.load_tail_f32(x + k // 16 * 64, k % 16)
        acc = acc + v * v
    return simd.sum_f32x16(acc)


per_level(_vector_sum_of_squares)(_sum_of_squares)


@inline
def _scale_range(x: int, r: Any, weight: int, out: int, first: int, k: int, add: int) -> None:
    for i in range(first, k):
        scaled = np.float32(get_f32(x + 4 * i) * r)
        y = np.float32(scaled * get_f32(weight + 4 * i))
        if add != 0:
            y = np.float32(get_f32(out + 4 * i) + y)
        set_f32(out + 4 * i, y)


def _scale(isa: Any, x: int, r: Any, weight: int, out: int, k: int, add: int) -> None:
    _scale_range(x, r, weight, out, 0, k, add)


def _vector_scale(isa: Any, x: int, r: Any, weight: int, out: int, k: int, add: int) -> None:
    factor = simd.splat_f32x16(r)
    for i in range(k // 16):
        y = simd.load_f32x16(x + 64 * i) * factor * simd.load_f32x16(weight + 64 * i)
        if add != 0:
            y = simd.load_f32x16(out + 64 * i) + y
        simd.store_f32x16(out + 64 * i, y)
    _scale_range(x, r, weight, out, k // 16 * 16, k, add)


per_level(_vector_scale)(_scale)


@kernel
def rmsnorm(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """A token belongs to one thread; see the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    weight = get_i64(record + 8 * WEIGHT)
    k = get_i64(record + 8 * K)
    eps = np.float32(get_f64(record + 8 * EPS))
    index = get_i64(record + 8 * INDEX)
    add = get_i64(record + 8 * ADD)
    for t in range(thread, tokens, threads):
        source = t
        if index != 0:
            source = int(get_i32(index + 4 * t))
        for g in range(get_i64(record + 8 * GROUPS)):
            x = get_i64(record + 8 * X) + source * get_i64(record + 8 * X_STRIDE) + 4 * g * k
            out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + 4 * g * k
            mean = np.float32(_sum_of_squares(isa, x, k) / np.float32(k))
            r = np.float32(np.float32(1) / np.float32(np.sqrt(np.float32(mean + eps))))
            _scale(isa, x, r, weight, out, k, add)
