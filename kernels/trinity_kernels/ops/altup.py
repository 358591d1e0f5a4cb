"""AltUp: four residual streams, of which a layer computes the first and predicts the others.

Shapes: STREAMS is M rows of the four streams of K float32, one after the other; COEFS is M rows of
float32, 16 for ``altup_predict`` and 4 for ``altup_correct``; X and OUT are M rows of K float32,
SCALE is K float32. Each has a stride of its own.

    altup_predict     stream i = stream i + sum over j of COEFS[4 i + j] * stream j
    altup_correct     stream i = stream i + (COEFS[i] + 1) * (X - stream 0); then
                      OUT = stream 0 * SCALE
    match_magnitude   each of GROUPS vectors of K values of X becomes as long as TARGET's first K:
                      x = x * sqrt(mean(TARGET^2)) / sqrt(max(mean(x^2), 1e-5))

Numerics: products and sums are rounded separately, in the order of streams; means as in norm.py.
Source: Baykal et al., Alternating Updates for Efficient Transformers, 2023 (arXiv 2301.13310), as
Gemma 3n uses it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i64, set_f32, slots_of
from trinity_kernels.ops.norm import sum_of_squares
from trinity_kernels.ops.shares import shares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

STREAMS, STRIDE, COEFS, COEFS_STRIDE, K, X, X_STRIDE, OUT, OUT_STRIDE, SCALE = range(3, 13)
TARGET, TARGET_STRIDE, GROUPS = range(13, 16)
COUNT = 4
_LEAST = np.float32(1e-5)


@inline
def _mixed(coefs: int, v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    y = np.float32(get_f32(coefs) * v0)
    y = np.float32(y + np.float32(get_f32(coefs + 4) * v1))
    y = np.float32(y + np.float32(get_f32(coefs + 8) * v2))
    return np.float32(y + np.float32(get_f32(coefs + 12) * v3))


@inline
def _predict_one_by_one(at: int, k: int, coefs: int, first: int, last: int) -> None:
    for i in range(first, last):
        p = at + 4 * i
        v0, v1 = get_f32(p), get_f32(p + 4 * k)
        v2, v3 = get_f32(p + 8 * k), get_f32(p + 12 * k)
        set_f32(p, np.float32(v0 + _mixed(coefs, v0, v1, v2, v3)))
        set_f32(p + 4 * k, np.float32(v1 + _mixed(coefs + 16, v0, v1, v2, v3)))
        set_f32(p + 8 * k, np.float32(v2 + _mixed(coefs + 32, v0, v1, v2, v3)))
        set_f32(p + 12 * k, np.float32(v3 + _mixed(coefs + 48, v0, v1, v2, v3)))


def _predict(isa: Any, at: int, k: int, coefs: int, first: int, last: int) -> None:
    _predict_one_by_one(at, k, coefs, first, last)


@inline
def _mixed_vector(coefs: int, v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    y = simd.splat_f32x16(get_f32(coefs)) * v0
    y = y + simd.splat_f32x16(get_f32(coefs + 4)) * v1
    y = y + simd.splat_f32x16(get_f32(coefs + 8)) * v2
    return y + simd.splat_f32x16(get_f32(coefs + 12)) * v3


def _predict_vector(isa: Any, at: int, k: int, coefs: int, first: int, last: int) -> None:
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        p = at + 4 * i
        v0, v1 = simd.load_f32x16(p), simd.load_f32x16(p + 4 * k)
        v2, v3 = simd.load_f32x16(p + 8 * k), simd.load_f32x16(p + 12 * k)
        simd.store_f32x16(p, v0 + _mixed_vector(coefs, v0, v1, v2, v3))
        simd.store_f32x16(p + 4 * k, v1 + _mixed_vector(coefs + 16, v0, v1, v2, v3))
        simd.store_f32x16(p + 8 * k, v2 + _mixed_vector(coefs + 32, v0, v1, v2, v3))
        simd.store_f32x16(p + 12 * k, v3 + _mixed_vector(coefs + 48, v0, v1, v2, v3))
    _predict_one_by_one(at, k, coefs, whole, last)


per_level(_predict_vector)(_predict)


@kernel
def altup_predict(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    streams, stride, coefs, coefs_stride = slots_of(record, (STREAMS, STRIDE, COEFS, COEFS_STRIDE))
    k = get_i64(record + 8 * K)
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        _predict(isa, streams + t * stride, k, coefs + t * coefs_stride, first, last)


@inline
def _correct_one_by_one(
    at: int, k: int, coefs: int, x: int, scale: int, out: int, first: int, last: int
) -> None:
    for i in range(first, last):
        p = at + 4 * i
        change = np.float32(get_f32(x + 4 * i) - get_f32(p))
        for stream in range(COUNT):
            factor = np.float32(get_f32(coefs + 4 * stream) + np.float32(1))
            q = p + 4 * stream * k
            set_f32(q, np.float32(get_f32(q) + np.float32(factor * change)))
        set_f32(out + 4 * i, np.float32(get_f32(p) * get_f32(scale + 4 * i)))


def _correct(
    isa: Any, at: int, k: int, coefs: int, x: int, scale: int, out: int, first: int, last: int
) -> None:
    _correct_one_by_one(at, k, coefs, x, scale, out, first, last)


def _correct_vector(
    isa: Any, at: int, k: int, coefs: int, x: int, scale: int, out: int, first: int, last: int
) -> None:
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        p = at + 4 * i
        change = simd.load_f32x16(x + 4 * i) - simd.load_f32x16(p)
        for stream in range(COUNT):
            factor = simd.splat_f32x16(np.float32(get_f32(coefs + 4 * stream) + np.float32(1)))
            q = p + 4 * stream * k
            simd.store_f32x16(q, simd.load_f32x16(q) + factor * change)
        simd.store_f32x16(out + 4 * i, simd.load_f32x16(p) * simd.load_f32x16(scale + 4 * i))
    _correct_one_by_one(at, k, coefs, x, scale, out, whole, last)


per_level(_correct_vector)(_correct)


@kernel
def altup_correct(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    streams, stride, coefs, coefs_stride = slots_of(record, (STREAMS, STRIDE, COEFS, COEFS_STRIDE))
    x, x_stride, out, out_stride = slots_of(record, (X, X_STRIDE, OUT, OUT_STRIDE))
    k, scale = slots_of(record, (K, SCALE))
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        _correct(
            isa, streams + t * stride, k, coefs + t * coefs_stride, x + t * x_stride, scale,
            out + t * out_stride, first, last,
        )  # fmt: skip


def _scaled(isa: Any, x: int, factor: Any, k: int) -> None:
    for i in range(k):
        set_f32(x + 4 * i, np.float32(get_f32(x + 4 * i) * factor))


def _scaled_vector(isa: Any, x: int, factor: Any, k: int) -> None:
    whole = k // 16 * 16
    for i in range(0, whole, 16):
        simd.store_f32x16(x + 4 * i, simd.load_f32x16(x + 4 * i) * simd.splat_f32x16(factor))
    for i in range(whole, k):
        set_f32(x + 4 * i, np.float32(get_f32(x + 4 * i) * factor))


per_level(_scaled_vector)(_scaled)


@kernel
def match_magnitude(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; a vector belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, x_stride, target, target_stride = slots_of(record, (X, X_STRIDE, TARGET, TARGET_STRIDE))
    k, groups = slots_of(record, (K, GROUPS))
    zero = np.float32(0)
    for item in range(thread, tokens * groups, positive(threads)):
        t = item // groups
        own = x + t * x_stride + 4 * (item % groups) * k
        wanted = np.float32(
            sum_of_squares(isa, target + t * target_stride, zero, k) / np.float32(k)
        )
        square = np.float32(sum_of_squares(isa, own, zero, k) / np.float32(k))
        wanted = np.float32(np.sqrt(wanted))
        _scaled(isa, own, np.float32(wanted / np.float32(np.sqrt(max(square, _LEAST)))), k)
