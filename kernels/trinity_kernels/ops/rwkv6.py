"""RWKV 6: mixing with the token before by weights that depend on both, and a state without a rule.

Shapes: as in rwkv.py; DELTA is M rows of PARTS * SIZE float32, U is HEADS * SIZE float32.

    shift_by      for each of PARTS outputs: OUT = X + (the token before's X - X) * (its row of MU +
                  its part of DELTA); before position 0 there are zeros
    wkv6_decay    in place: W = exp(-exp(W + W0))
    wkv6_rule     with S a matrix (keys, values) of each head:
                  OUT = (S + (U * K) V^T)^T R, then S = W * S + K V^T
    wkv6_norm     in place: OUT = NORM * norm(OUT) + NORM_BIAS for each head; norm subtracts the
                  mean and divides by sqrt(variance + EPS)

Numerics: sums over keys as in state.py; other sums are in order, each product and sum rounded.
Source: Peng et al., Eagle and Finch, 2024 (arXiv 2404.05892); llama.cpp src/models/rwkv6-base.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import fma_f32, get_f32, get_f64, get_i64, set_f32, slots_of
from trinity_kernels.ops.exponential import exp_f32
from trinity_kernels.ops.rwkv import mean_and_divisor, row_at
from trinity_kernels.ops.state import own_values, states_around, states_of
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

POSITIONS, TABLES, LAYER_OFFSET, HEADS, SIZE = range(3, 8)
# shift_by: PARTS buffers from OUTS on, each an address and a stride; SIZE values in a row
X, X_STRIDE, DELTA, DELTA_STRIDE, MU, PARTS, OUTS = range(8, 15)
# The others
OUT, OUT_STRIDE, R, R_STRIDE, W, W_STRIDE, K, K_STRIDE, V, V_STRIDE = range(8, 18)
W0, U, NORM, NORM_BIAS, EPS = range(18, 23)
_ZERO = np.float32(0)


@kernel
def shift_by(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; a thread has some values of all tokens. The state is the newest X."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    size, mu, parts, tables, offset = slots_of(record, (SIZE, MU, PARTS, TABLES, LAYER_OFFSET))
    first, last = own_values(size, thread, threads)
    for t in range(tokens):
        old, new = states_around(tables, get_i64(record + 8 * POSITIONS), t, offset)
        x = row_at(record, X, t, 0)
        for part in range(parts):
            out = row_at(record, OUTS + 2 * part, t, 0)
            delta = row_at(record, DELTA, t, 4 * part * size)
            own = mu + 4 * part * size
            for i in range(first, last):
                present = get_f32(x + 4 * i)
                before = np.float32(0)
                if old != 0:
                    before = get_f32(old + 4 * i)
                share = np.float32(get_f32(own + 4 * i) + get_f32(delta + 4 * i))
                mixed = np.float32(np.float32(before - present) * share)
                set_f32(out + 4 * i, np.float32(mixed + present))
        for i in range(first, last):
            set_f32(new + 4 * i, get_f32(x + 4 * i))


@kernel
def wkv6_decay(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; a token's head belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, size = slots_of(record, (HEADS, SIZE))
    for item in range(thread, tokens * heads, positive(threads)):
        head = 4 * (item % heads) * size
        w, w0 = row_at(record, W, item // heads, head), get_i64(record + 8 * W0) + head
        for i in range(size):
            rate = exp_f32(np.float32(get_f32(w + 4 * i) + get_f32(w0 + 4 * i)))
            set_f32(w + 4 * i, exp_f32(np.float32(-rate)))


@inline
def _columns_one_by_one(
    old: int, new: int, r: int, w: int, k: int, v: int, u: int, out: int, size: int, count: int
) -> None:
    for c in range(count):
        value = get_f32(v + 4 * c)
        even = np.float32(0)
        odd = np.float32(0)
        for i in range(size):
            at = 64 * i + 4 * c
            s = get_f32(old + at)
            key = get_f32(k + 4 * i)
            seen = fma_f32(np.float32(get_f32(u + 4 * i) * key), value, s)
            set_f32(new + at, fma_f32(key, value, np.float32(s * get_f32(w + 4 * i))))
            if i % 2 == 0:
                even = fma_f32(get_f32(r + 4 * i), seen, even)
            else:
                odd = fma_f32(get_f32(r + 4 * i), seen, odd)
        set_f32(out + 4 * c, np.float32(even + odd))


def _columns(
    isa: Any, old: int, new: int, r: int, w: int, k: int, v: int, u: int, out: int, size: int,
    count: int,
) -> None:  # fmt: skip
    """Update the first ``count`` of 16 columns from the state at ``old`` to that at ``new``."""
    _columns_one_by_one(old, new, r, w, k, v, u, out, size, count)


@inline
def _state_row(old: int, new: int, w: int, k: int, u: int, v: Any) -> Any:
    """Update a row of the state, and return what is read of it."""
    s = simd.load_f32x16(old)
    key = get_f32(k)
    seen = simd.fma_f32x16(simd.splat_f32x16(np.float32(get_f32(u) * key)), v, s)
    kept = s * simd.splat_f32x16(get_f32(w))
    simd.store_f32x16(new, simd.fma_f32x16(simd.splat_f32x16(key), v, kept))
    return seen


def _columns_vector(
    isa: Any, old: int, new: int, r: int, w: int, k: int, v: int, u: int, out: int, size: int,
    count: int,
) -> None:  # fmt: skip
    if count < 16:
        _columns_one_by_one(old, new, r, w, k, v, u, out, size, count)
    else:
        even = simd.splat_f32x16(_ZERO)
        odd = even
        values = simd.load_f32x16(v)
        for i in range(0, size // 2 * 2, 2):
            j = 4 * i
            seen = _state_row(old + 16 * j, new + 16 * j, w + j, k + j, u + j, values)
            even = simd.fma_f32x16(simd.splat_f32x16(get_f32(r + j)), seen, even)
            j = 4 * i + 4
            seen = _state_row(old + 16 * j, new + 16 * j, w + j, k + j, u + j, values)
            odd = simd.fma_f32x16(simd.splat_f32x16(get_f32(r + j)), seen, odd)
        if size % 2 != 0:
            j = 4 * size - 4
            seen = _state_row(old + 16 * j, new + 16 * j, w + j, k + j, u + j, values)
            even = simd.fma_f32x16(simd.splat_f32x16(get_f32(r + j)), seen, even)
        simd.store_f32x16(out, even + odd)


per_level(_columns_vector)(_columns)


@kernel
def wkv6_rule(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; 16 columns of a head's state belong to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, size, tables, offset = slots_of(record, (HEADS, SIZE, TABLES, LAYER_OFFSET))
    blocks = (size + 15) // 16
    units = heads * blocks
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        column = unit % blocks * 16
        head = 4 * (unit // blocks) * size
        values = head + 4 * column
        u = get_i64(record + 8 * U) + head
        at = offset + 64 * size * unit
        for t in range(tokens):
            old, new = states_of(tables, get_i64(record + 8 * POSITIONS), t, at, size)
            _columns(
                isa, old, new, row_at(record, R, t, head), row_at(record, W, t, head),
                row_at(record, K, t, head), row_at(record, V, t, values), u,
                row_at(record, OUT, t, values), size, min(size - column, 16),
            )  # fmt: skip


@kernel
def wkv6_norm(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; a token's head belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, size = slots_of(record, (HEADS, SIZE))
    eps = np.float32(get_f64(record + 8 * EPS))
    for item in range(thread, tokens * heads, positive(threads)):
        head = 4 * (item % heads) * size
        out = row_at(record, OUT, item // heads, head)
        weight, bias = get_i64(record + 8 * NORM) + head, get_i64(record + 8 * NORM_BIAS) + head
        mean, divisor = mean_and_divisor(out, size, eps)
        for i in range(size):
            y = np.float32(np.float32(get_f32(out + 4 * i) - mean) / divisor)
            y = np.float32(y * get_f32(weight + 4 * i))
            set_f32(out + 4 * i, np.float32(y + get_f32(bias + 4 * i)))
