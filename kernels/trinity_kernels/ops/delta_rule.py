"""The gated delta rule: each token corrects and reads a state S, a matrix for each value head.

With decay = exp(A * softplus(alpha + DT_BIAS)) and beta = sigmoid(BETA) a token computes
    u = beta * (v - decay * S^T k),    S = decay * S + k u^T,    out = SCALE * S^T q
Shapes: QUERY and KEY are M rows of KEY_HEADS * KEYS float32, VALUE of HEADS * VALUES, all STRIDE
bytes apart. OUT has the shape of VALUE, BETA and ALPHA are M rows of HEADS; each has a stride of
its own. A and DT_BIAS are HEADS float32. Head h uses the head h % KEY_HEADS of queries and keys if
TILED is 1, else h // (HEADS / KEY_HEADS). TABLES, POSITIONS and LAYER_OFFSET say where the state is
stored (state.py, also for the order of sums). The tokens of a sequence are in order. While a token
updates the state, S^T k for the next token's key is computed as well.
Source: Yang et al., Gated Delta Networks, 2024 (arXiv 2412.06464), equation 10.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_f64, get_i32, get_i64, set_f32, slots_of
from trinity_kernels.ops.exponential import exp_f32, sigmoid_f32, softplus_f32
from trinity_kernels.ops.matmul.prefetch import prefetch_bytes
from trinity_kernels.ops.state import (
    advance_and_read,
    advance_column,
    advance_columns,
    read_column,
    read_columns,
    state_before,
    states_of,
)
from trinity_kernels.record import ROWS
from trinity_kernels.tags import per_level

QUERY, KEY, VALUE, STRIDE, BETA, BETA_STRIDE, ALPHA, ALPHA_STRIDE, A, DT_BIAS = range(3, 13)
OUT, OUT_STRIDE, POSITIONS, TABLES, LAYER_OFFSET, SCALE = range(13, 19)
HEADS, KEY_HEADS, KEYS, VALUES, TILED = range(19, 24)


@inline
def _one_by_one(
    old: int, new: int, q: int, k: int, v: int, out: int, keys: int, count: int, decay: Any,
    beta: Any, scale: Any,
) -> None:  # fmt: skip
    for c in range(count):
        seen = np.float32(read_column(k, old + 4 * c, keys) * decay)
        u = np.float32(np.float32(get_f32(v + 4 * c) - seen) * beta)
        y = advance_column(old + 4 * c, new + 4 * c, q, k, u, keys, decay)
        set_f32(out + 4 * c, np.float32(y * scale))


def _token(
    isa: Any, old: int, new: int, q: int, k: int, v: int, out: int, keys: int, count: int,
    decay: Any, beta: Any, scale: Any, known: bool, next_k: int, next_out: int,
) -> None:  # fmt: skip
    """Update the first ``count`` of 16 columns from the state at ``old`` to that at ``new``.

    If ``known`` and all 16 columns exist, OUT already holds S^T k of the state at ``old``. If
    ``next_k`` is not 0, S^T k for the next token of the same state may go to ``next_out``.
    """
    _one_by_one(old, new, q, k, v, out, keys, count, decay, beta, scale)


def _vector_token(
    isa: Any, old: int, new: int, q: int, k: int, v: int, out: int, keys: int, count: int,
    decay: Any, beta: Any, scale: Any, known: bool, next_k: int, next_out: int,
) -> None:  # fmt: skip
    if count < 16:
        _one_by_one(old, new, q, k, v, out, keys, count, decay, beta, scale)
    else:
        seen = simd.load_f32x16(out) if known else read_columns(k, old, keys)
        u = (simd.load_f32x16(v) - seen * simd.splat_f32x16(decay)) * simd.splat_f32x16(beta)
        if next_k != 0:
            y = advance_and_read(old, new, q, k, u, keys, decay, next_k, next_out)
        else:
            y = advance_columns(old, new, q, k, u, keys, decay)
        simd.store_f32x16(out, y * simd.splat_f32x16(scale))


def _ahead(isa: Any, address: int, nbytes: int) -> None:
    """Prefetch what is read next."""
    return


def _vector_ahead(isa: Any, address: int, nbytes: int) -> None:
    prefetch_bytes(address, nbytes)


per_level(_vector_token)(_token)
per_level(_vector_ahead)(_ahead)


@kernel
def delta_rule(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Process all tokens in order; 16 columns of a head's state belong to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, key_heads, keys, values = slots_of(record, (HEADS, KEY_HEADS, KEYS, VALUES))
    tiled, tables, offset = slots_of(record, (TILED, TABLES, LAYER_OFFSET))
    scale = np.float32(get_f64(record + 8 * SCALE))
    blocks = (values + 15) // 16
    units = heads * blocks
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        head = unit // blocks
        column = unit % blocks * 16
        of_keys = head % key_heads if tiled != 0 else head // (heads // key_heads)
        a = get_f32(get_i64(record + 8 * A) + 4 * head)
        bias = get_f32(get_i64(record + 8 * DT_BIAS) + 4 * head)
        at = offset + 64 * keys * unit
        known = False  # whether OUT already holds S^T k
        for t in range(tokens):
            old, new = states_of(tables, get_i64(record + 8 * POSITIONS), t, at, keys)
            if t == 0:
                _ahead(isa, old + 64 * keys, 64 * keys)  # of the next unit
            next_k = 0
            if t + 1 < tokens:
                position = int(get_i32(get_i64(record + 8 * POSITIONS) + 4 * t + 4))
                if position > 0 and state_before(tables, t + 1, position, at) == new:
                    next_k = get_i64(record + 8 * KEY) + 4 * of_keys * keys
                    next_k += (t + 1) * get_i64(record + 8 * STRIDE)
            k = t * get_i64(record + 8 * STRIDE) + 4 * of_keys * keys
            v = t * get_i64(record + 8 * STRIDE) + 4 * (head * values + column)
            out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE)
            beta = get_i64(record + 8 * BETA) + t * get_i64(record + 8 * BETA_STRIDE)
            alpha = get_i64(record + 8 * ALPHA) + t * get_i64(record + 8 * ALPHA_STRIDE)
            step = softplus_f32(np.float32(get_f32(alpha + 4 * head) + bias))
            _token(
                isa, old, new, get_i64(record + 8 * QUERY) + k, get_i64(record + 8 * KEY) + k,
                get_i64(record + 8 * VALUE) + v, out + 4 * (head * values + column), keys,
                min(values - column, 16), exp_f32(np.float32(step * a)),
                sigmoid_f32(get_f32(beta + 4 * head)), scale, known, next_k,
                out + get_i64(record + 8 * OUT_STRIDE) + 4 * (head * values + column),
            )  # fmt: skip
            known = next_k != 0
