"""out = norm(x) * weight + bias for each vector; with ADD 1 it is added to out.

The tag is the norm: "rms" is x / sqrt(mean(x^2) + eps); "layer" uses x - mean(x) instead of x.
Shapes: X and OUT, which may be X, are M rows of GROUPS vectors of K float32. WEIGHT is K float32
for each vector of a row, WEIGHT_STEP bytes apart; 0 if all share one weight. BIAS is 0 or has the
layout of WEIGHT. INDEX is 0 or M int32: row i is read from row INDEX[i] of x.
Numerics: values and squares are summed in 16 lanes and by one tree; then (x - mean) times
1 / sqrt(...), times weight, plus bias, each step rounded separately.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.lanes import tree_sum, zero_lanes
from trinity_kernels.memory import get_f32, get_f64, get_i32, get_i64, set_f32, slots_of
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import constant, per_level

X, X_STRIDE, WEIGHT, WEIGHT_STEP, BIAS, OUT, OUT_STRIDE, K, EPS, GROUPS, INDEX, ADD = range(3, 15)
NORMS = ("rms", "layer")


@constant
def _takes_mean_off(qt: Any) -> bool:
    return bool(qt.value == "layer")


def row_sum(isa: Any, x: int, k: int) -> Any:
    """The sum of k float32, in 16 lanes and by one tree."""
    lanes = zero_lanes()
    for i in range(k):
        lanes[i % 16] = np.float32(lanes[i % 16] + get_f32(x + 4 * i))
    return tree_sum(lanes)


def _vector_sum(isa: Any, x: int, k: int) -> Any:
    acc = simd.splat_f32x16(np.float32(0))
    for i in range(k // 16):
        acc = acc + simd.load_f32x16(x + 64 * i)
    if k % 16 != 0:
        acc = acc + simd.load_tail_f32(x + k // 16 * 64, k % 16)
    return simd.sum_f32x16(acc)


per_level(_vector_sum)(row_sum)


def sum_of_squares(isa: Any, x: int, mean: Any, k: int) -> Any:
    """The sum of (x - mean)^2 of k float32, in 16 lanes and by one tree."""
    lanes = zero_lanes()
    for i in range(k):
        v = np.float32(get_f32(x + 4 * i) - mean)
        lanes[i % 16] = np.float32(lanes[i % 16] + np.float32(v * v))
    return tree_sum(lanes)


def _vector_sum_of_squares(isa: Any, x: int, mean: Any, k: int) -> Any:
    zero = simd.splat_f32x16(np.float32(0))
    middle = simd.splat_f32x16(mean)
    acc = zero
    for i in range(k // 16):
        v = simd.load_f32x16(x + 64 * i) - middle
        acc = acc + v * v
    if k % 16 != 0:
        v = simd.load_tail_f32(x + k // 16 * 64, k % 16) - middle
        acc = acc + simd.select_below(simd.lane_index(), k % 16, v * v, zero)
    return simd.sum_f32x16(acc)


per_level(_vector_sum_of_squares)(sum_of_squares)


@inline
def _scale_range(
    x: int, mean: Any, r: Any, weight: int, bias: int, out: int, first: int, k: int, add: int
) -> None:
    for i in range(first, k):
        scaled = np.float32(np.float32(get_f32(x + 4 * i) - mean) * r)
        y = np.float32(scaled * get_f32(weight + 4 * i))
        if bias != 0:
            y = np.float32(y + get_f32(bias + 4 * i))
        if add != 0:
            y = np.float32(get_f32(out + 4 * i) + y)
        set_f32(out + 4 * i, y)


def _scale(
    isa: Any, x: int, mean: Any, r: Any, weight: int, bias: int, out: int, k: int, add: int
) -> None:
    _scale_range(x, mean, r, weight, bias, out, 0, k, add)


def _vector_scale(
    isa: Any, x: int, mean: Any, r: Any, weight: int, bias: int, out: int, k: int, add: int
) -> None:
    factor, middle = simd.splat_f32x16(r), simd.splat_f32x16(mean)
    for i in range(k // 16):
        y = (simd.load_f32x16(x + 64 * i) - middle) * factor * simd.load_f32x16(weight + 64 * i)
        if bias != 0:
            y = y + simd.load_f32x16(bias + 64 * i)
        if add != 0:
            y = simd.load_f32x16(out + 64 * i) + y
        simd.store_f32x16(out + 64 * i, y)
    _scale_range(x, mean, r, weight, bias, out, k // 16 * 16, k, add)


per_level(_vector_scale)(_scale)


@kernel
def norm(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Normalize; a vector belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k, index, add, groups, step = slots_of(record, (K, INDEX, ADD, GROUPS, WEIGHT_STEP))
    eps = np.float32(get_f64(record + 8 * EPS))
    for item in range(thread, tokens * groups, positive(threads)):
        t = item // groups
        g = item % groups
        source = t
        if index != 0:
            source = int(get_i32(index + 4 * t))
        x = get_i64(record + 8 * X) + source * get_i64(record + 8 * X_STRIDE) + 4 * g * k
        out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + 4 * g * k
        weight = get_i64(record + 8 * WEIGHT) + g * step
        bias = get_i64(record + 8 * BIAS)
        if bias != 0:
            bias += g * step
        mean = np.float32(0)
        if _takes_mean_off(qt):
            mean = np.float32(row_sum(isa, x, k) / np.float32(k))
        square = np.float32(sum_of_squares(isa, x, mean, k) / np.float32(k))
        r = np.float32(np.float32(1) / np.float32(np.sqrt(np.float32(square + eps))))
        _scale(isa, x, mean, r, weight, bias, out, k, add)
