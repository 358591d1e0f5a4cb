"""Mamba-2's selective scan: each token updates and reads a state S, a matrix for each head.

With step = softplus(dt + DT_BIAS) and decay = exp(A * step) a token computes
    S = decay * S + b (step * x)^T,    out = S^T c + D * x
Shapes: X is M rows of HEADS * VALUES float32, B and C of GROUPS * KEYS, all STRIDE bytes apart. OUT
has the shape of X, DT is M rows of HEADS; each has a stride of its own. A, D and DT_BIAS are HEADS
float32. Head h uses the group h // (HEADS / GROUPS) of b and c. TABLES, POSITIONS and LAYER_OFFSET
say where the state is stored (state.py, also for the order of sums). The tokens of a sequence are
in order.
Source: Dao and Gu, Transformers are SSMs, 2024 (arXiv 2405.21060), section 6; D and the bias as in
its code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i64, set_f32, slots_of
from trinity_kernels.ops.exponential import exp_f32, softplus_f32
from trinity_kernels.ops.state import (
    advance_column,
    advance_columns,
    states_of,
)
from trinity_kernels.record import ROWS
from trinity_kernels.tags import per_level

X, B, C, STRIDE, DT, DT_STRIDE, A, D, DT_BIAS, OUT, OUT_STRIDE = range(3, 14)
POSITIONS, TABLES, LAYER_OFFSET, HEADS, GROUPS, KEYS, VALUES = range(14, 21)


@inline
def _one_by_one(
    old: int, new: int, b: int, c: int, x: int, out: int, keys: int, count: int, decay: Any,
    step: Any, d: Any,
) -> None:  # fmt: skip
    for i in range(count):
        u = np.float32(get_f32(x + 4 * i) * step)
        y = advance_column(old + 4 * i, new + 4 * i, c, b, u, keys, decay)
        set_f32(out + 4 * i, np.float32(y + np.float32(get_f32(x + 4 * i) * d)))


def _token(
    isa: Any, old: int, new: int, b: int, c: int, x: int, out: int, keys: int, count: int,
    decay: Any, step: Any, d: Any,
) -> None:  # fmt: skip
    """Update the first ``count`` of 16 columns from the state at ``old`` to that at ``new``."""
    _one_by_one(old, new, b, c, x, out, keys, count, decay, step, d)


def _vector_token(
    isa: Any, old: int, new: int, b: int, c: int, x: int, out: int, keys: int, count: int,
    decay: Any, step: Any, d: Any,
) -> None:  # fmt: skip
    if count < 16:
        _one_by_one(old, new, b, c, x, out, keys, count, decay, step, d)
    else:
        values = simd.load_f32x16(x)
        y = advance_columns(old, new, c, b, values * simd.splat_f32x16(step), keys, decay)
        simd.store_f32x16(out, y + values * simd.splat_f32x16(d))


per_level(_vector_token)(_token)


@kernel
def selective_scan(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Process all tokens in order; 16 columns of a head's state belong to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, groups, keys = slots_of(record, (HEADS, GROUPS, KEYS))
    values, tables, offset = slots_of(record, (VALUES, TABLES, LAYER_OFFSET))
    blocks = (values + 15) // 16
    units = heads * blocks
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        head = unit // blocks
        column = unit % blocks * 16
        of_group = 4 * (head // (heads // groups)) * keys
        a = get_f32(get_i64(record + 8 * A) + 4 * head)
        d = get_f32(get_i64(record + 8 * D) + 4 * head)
        bias = get_f32(get_i64(record + 8 * DT_BIAS) + 4 * head)
        at = offset + 64 * keys * unit
        for t in range(tokens):
            old, new = states_of(tables, get_i64(record + 8 * POSITIONS), t, at, keys)
            group = t * get_i64(record + 8 * STRIDE) + of_group
            x = t * get_i64(record + 8 * STRIDE) + 4 * (head * values + column)
            out = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE)
            dt = get_i64(record + 8 * DT) + t * get_i64(record + 8 * DT_STRIDE)
            step = softplus_f32(np.float32(get_f32(dt + 4 * head) + bias))
            _token(
                isa, old, new, get_i64(record + 8 * B) + group, get_i64(record + 8 * C) + group,
                get_i64(record + 8 * X) + x, out + 4 * (head * values + column), keys,
                min(values - column, 16), exp_f32(np.float32(step * a)), step, d,
            )  # fmt: skip
