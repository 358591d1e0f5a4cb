"""Kimi's delta attention: the gated delta rule with a decay for each key of a head.

``channel_decay`` computes decays in place: ALPHA = exp(A * softplus(ALPHA + DT_BIAS)). ALPHA is M
rows of HEADS * KEYS float32, A is HEADS float32, DT_BIAS is HEADS * KEYS.
``channel_delta_rule`` computes for each token, with beta = sigmoid(BETA) and S a matrix (KEYS,
VALUES) of each head, whose row n decays by ALPHA[n]:
    S = ALPHA * S,    u = beta * (v - S^T k),    S = S + k u^T,    out = SCALE * S^T q
Shapes: QUERY and KEY are M rows of HEADS * KEYS float32, VALUE and OUT of HEADS * VALUES, BETA of
HEADS; each has a stride of its own. TABLES, POSITIONS and LAYER_OFFSET say where the state is
stored (state.py, also for the order of sums). The tokens of a sequence are in order.
Source: Kimi Linear, 2025 (arXiv 2510.26692), equation 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import fma_f32, get_f32, get_f64, get_i64, set_f32, slots_of
from trinity_kernels.ops.exponential import exp_f32, sigmoid_f32, softplus_f32
from trinity_kernels.ops.state import (
    advance_column,
    advance_columns,
    states_of,
)
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

QUERY, QUERY_STRIDE, KEY, KEY_STRIDE, VALUE, VALUE_STRIDE, BETA, BETA_STRIDE = range(3, 11)
ALPHA, ALPHA_STRIDE, OUT, OUT_STRIDE, POSITIONS, TABLES, LAYER_OFFSET, SCALE = range(11, 19)
HEADS, KEYS, VALUES, A, DT_BIAS = range(19, 24)
_ONE = np.float32(1)


@kernel
def channel_decay(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; the decays of a token's head belong to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, keys, alpha, stride = slots_of(record, (HEADS, KEYS, ALPHA, ALPHA_STRIDE))
    for item in range(thread, tokens * heads, positive(threads)):
        head = item % heads
        a = get_f32(get_i64(record + 8 * A) + 4 * head)
        bias = get_i64(record + 8 * DT_BIAS) + 4 * head * keys
        at = alpha + item // heads * stride + 4 * head * keys
        for i in range(keys):
            step = softplus_f32(np.float32(get_f32(at + 4 * i) + get_f32(bias + 4 * i)))
            set_f32(at + 4 * i, exp_f32(np.float32(step * a)))


@inline
def _one_by_one(
    old: int, new: int, decay: int, q: int, k: int, v: int, out: int, keys: int, count: int,
    beta: Any, scale: Any,
) -> None:  # fmt: skip
    for c in range(count):
        even = np.float32(0)
        odd = np.float32(0)
        for i in range(keys):
            s = np.float32(get_f32(old + 64 * i + 4 * c) * get_f32(decay + 4 * i))
            set_f32(new + 64 * i + 4 * c, s)
            if i % 2 == 0:
                even = fma_f32(get_f32(k + 4 * i), s, even)
            else:
                odd = fma_f32(get_f32(k + 4 * i), s, odd)
        seen = np.float32(even + odd)
        u = np.float32(np.float32(get_f32(v + 4 * c) - seen) * beta)
        y = advance_column(new + 4 * c, new + 4 * c, q, k, u, keys, _ONE)
        set_f32(out + 4 * c, np.float32(y * scale))


def _token(
    isa: Any, old: int, new: int, decay: int, q: int, k: int, v: int, out: int, keys: int,
    count: int, beta: Any, scale: Any,
) -> None:  # fmt: skip
    """Update the first ``count`` of 16 columns from the state at ``old`` to that at ``new``."""
    _one_by_one(old, new, decay, q, k, v, out, keys, count, beta, scale)


@inline
def _decayed_row(old: int, new: int, decay: int) -> Any:
    s = simd.load_f32x16(old) * simd.splat_f32x16(get_f32(decay))
    simd.store_f32x16(new, s)
    return s


def _vector_token(
    isa: Any, old: int, new: int, decay: int, q: int, k: int, v: int, out: int, keys: int,
    count: int, beta: Any, scale: Any,
) -> None:  # fmt: skip
    if count < 16:
        _one_by_one(old, new, decay, q, k, v, out, keys, count, beta, scale)
    else:
        even = simd.splat_f32x16(np.float32(0))
        odd = even
        for i in range(0, keys // 2 * 2, 2):
            s = _decayed_row(old + 64 * i, new + 64 * i, decay + 4 * i)
            even = simd.fma_f32x16(simd.splat_f32x16(get_f32(k + 4 * i)), s, even)
            at = 64 * i + 64
            s = _decayed_row(old + at, new + at, decay + 4 * i + 4)
            odd = simd.fma_f32x16(simd.splat_f32x16(get_f32(k + 4 * i + 4)), s, odd)
        if keys % 2 != 0:
            i = keys - 1
            s = _decayed_row(old + 64 * i, new + 64 * i, decay + 4 * i)
            even = simd.fma_f32x16(simd.splat_f32x16(get_f32(k + 4 * i)), s, even)
        u = (simd.load_f32x16(v) - (even + odd)) * simd.splat_f32x16(beta)
        y = advance_columns(new, new, q, k, u, keys, _ONE)
        simd.store_f32x16(out, y * simd.splat_f32x16(scale))


per_level(_vector_token)(_token)


@kernel
def channel_delta_rule(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Process all tokens in order; 16 columns of a head's state belong to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, keys, values = slots_of(record, (HEADS, KEYS, VALUES))
    tables, offset = slots_of(record, (TABLES, LAYER_OFFSET))
    scale = np.float32(get_f64(record + 8 * SCALE))
    blocks = (values + 15) // 16
    units = heads * blocks
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        head = unit // blocks
        column = unit % blocks * 16
        of_keys = 4 * head * keys
        of_values = 4 * (head * values + column)
        at = offset + 64 * keys * unit
        for t in range(tokens):
            old, new = states_of(tables, get_i64(record + 8 * POSITIONS), t, at, keys)
            beta = get_i64(record + 8 * BETA) + t * get_i64(record + 8 * BETA_STRIDE) + 4 * head
            _token(
                isa, old, new,
                get_i64(record + 8 * ALPHA) + t * get_i64(record + 8 * ALPHA_STRIDE) + of_keys,
                get_i64(record + 8 * QUERY) + t * get_i64(record + 8 * QUERY_STRIDE) + of_keys,
                get_i64(record + 8 * KEY) + t * get_i64(record + 8 * KEY_STRIDE) + of_keys,
                get_i64(record + 8 * VALUE) + t * get_i64(record + 8 * VALUE_STRIDE) + of_values,
                get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + of_values,
                keys, min(values - column, 16), sigmoid_f32(get_f32(beta)), scale,
            )  # fmt: skip
