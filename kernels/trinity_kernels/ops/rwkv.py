"""RWKV 7: a token mixed with the one before it, and a state with a decay for each key.

Shapes: a buffer is M rows of float32 with a stride of its own, of K values or of HEADS * SIZE; the
weights W0, A0, V0, K_K, K_A, R_K, NORM and NORM_BIAS are HEADS * SIZE float32, MU is PARTS rows of
SIZE float32.

    token_shift   for each of PARTS outputs: OUT = X + (the token before's X - X) * its row of MU;
                  before position 0 there are zeros
    rwkv_keys     in place, with a = sigmoid(A + A0) and n = K * K_K / |K * K_K| for each head:
                  W = exp(-exp(-1/2) sigmoid(W + W0)), K = K + K * K_A * (a - 1), A = n * a,
                  KEYS = n; V = V + (FIRST - V) * sigmoid(MIX + V0), or FIRST = V if MIX is 0
    rwkv_rule     with S a matrix (keys, values) of each head:
                  S = W * S - A (S^T KEYS)^T + K V^T, OUT = S^T R
    rwkv_output   OUT = (NORM * norm(OUT) + NORM_BIAS + V * sum(R * K * R_K)) * G for each head;
                  norm subtracts the mean and divides by sqrt(variance + EPS); G may be 0: no gate

TABLES, POSITIONS and LAYER_OFFSET say where a state is stored (state.py, also for the order of
sums). The tokens of a sequence are in order.
Numerics: other sums are in order, each product and sum rounded.
Source: Peng et al., RWKV-7, 2025 (arXiv 2503.14456); llama.cpp src/models/rwkv7-base.cpp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import fma_f32, get_f32, get_f64, get_i64, set_f32, slots_of
from trinity_kernels.ops.exponential import exp_f32, sigmoid_f32
from trinity_kernels.ops.state import (
    own_values,
    read_column,
    read_columns,
    states_around,
    states_of,
)
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

POSITIONS, TABLES, LAYER_OFFSET, HEADS, SIZE = range(3, 8)
X, X_STRIDE, OUT, OUT_STRIDE = range(8, 12)
# token_shift: PARTS buffers from OUTS on, each an address and a stride; SIZE values in a row
MU, PARTS, OUTS = range(12, 15)
# The others
R, R_STRIDE, W, W_STRIDE, K, K_STRIDE, V, V_STRIDE, A, A_STRIDE, KEYS, KEYS_STRIDE = range(13, 25)
# rwkv_keys, which has no R, positions and tables
FIRST, FIRST_STRIDE, MIX, MIX_STRIDE = R, R_STRIDE, X, X_STRIDE
W0, A0, V0, K_K, K_A = range(25, 30)
# rwkv_output
G, G_STRIDE, R_K, NORM, NORM_BIAS, EPS = range(25, 31)
_ONE, _ZERO = np.float32(1), np.float32(0)
_DECAY = np.float32(-(np.e**-0.5))
_LEAST = np.float32(1e-12)


@inline
def row_at(record: int, slot: int, token: int, head: int) -> int:
    """The address of a token's head in a buffer, whose stride is in the next slot."""
    stride = get_i64(record + 8 * slot + 8)
    return int(get_i64(record + 8 * slot) + token * stride + head)


@inline
def _shift_one_by_one(x: int, out: int, mu: int, old: int, first: int, last: int) -> None:
    for i in range(first, last):
        present = get_f32(x + 4 * i)
        before = np.float32(0)
        if old != 0:
            before = get_f32(old + 4 * i)
        mixed = np.float32(np.float32(before - present) * get_f32(mu + 4 * i))
        set_f32(out + 4 * i, np.float32(mixed + present))


def _shift(isa: Any, x: int, out: int, mu: int, old: int, first: int, last: int) -> None:
    """Mix some values of a token; ``old`` is 0 at the first position."""
    _shift_one_by_one(x, out, mu, old, first, last)


def _shift_vector(isa: Any, x: int, out: int, mu: int, old: int, first: int, last: int) -> None:
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        present = simd.load_f32x16(x + 4 * i)
        before = simd.splat_f32x16(_ZERO)
        if old != 0:
            before = simd.load_f32x16(old + 4 * i)
        mixed = (before - present) * simd.load_f32x16(mu + 4 * i)
        simd.store_f32x16(out + 4 * i, mixed + present)
    _shift_one_by_one(x, out, mu, old, whole, last)


per_level(_shift_vector)(_shift)


@kernel
def token_shift(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; a thread has some values of all tokens. The state is the newest X."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    size, mu, parts, tables, offset = slots_of(record, (SIZE, MU, PARTS, TABLES, LAYER_OFFSET))
    first, last = own_values(size, thread, threads)
    for t in range(tokens):
        old, new = states_around(tables, get_i64(record + 8 * POSITIONS), t, offset)
        x = row_at(record, X, t, 0)
        for part in range(parts):
            out = row_at(record, OUTS + 2 * part, t, 0)
            _shift(isa, x, out, mu + 4 * part * size, old, first, last)
        for i in range(first, last):
            set_f32(new + 4 * i, get_f32(x + 4 * i))


@inline
def _length(k: int, k_k: int, size: int) -> Any:
    """The Euclidean norm of the vector K * K_K of one head, at least 1e-12."""
    total = np.float32(0)
    for i in range(size):
        scaled = np.float32(get_f32(k + 4 * i) * get_f32(k_k + 4 * i))
        total = np.float32(total + np.float32(scaled * scaled))
    return max(np.float32(np.sqrt(total)), _LEAST)


@kernel
def rwkv_keys(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; a token's head belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, size, mixes = slots_of(record, (HEADS, SIZE, MIX))
    for item in range(thread, tokens * heads, positive(threads)):
        token = item // heads
        head = 4 * (item % heads) * size
        w, a = row_at(record, W, token, head), row_at(record, A, token, head)
        k, keys = row_at(record, K, token, head), row_at(record, KEYS, token, head)
        v, first = row_at(record, V, token, head), row_at(record, FIRST, token, head)
        w0, a0 = get_i64(record + 8 * W0) + head, get_i64(record + 8 * A0) + head
        k_k, k_a = get_i64(record + 8 * K_K) + head, get_i64(record + 8 * K_A) + head
        length = _length(k, k_k, size)
        for i in range(size):
            at = 4 * i
            share = sigmoid_f32(np.float32(get_f32(w + at) + get_f32(w0 + at)))
            set_f32(w + at, exp_f32(np.float32(share * _DECAY)))
            rate = sigmoid_f32(np.float32(get_f32(a + at) + get_f32(a0 + at)))
            key = get_f32(k + at)
            unit = np.float32(np.float32(key * get_f32(k_k + at)) / length)
            set_f32(keys + at, unit)
            set_f32(a + at, np.float32(unit * rate))
            change = np.float32(np.float32(key * get_f32(k_a + at)) * np.float32(rate - _ONE))
            set_f32(k + at, np.float32(key + change))
        if mixes == 0:
            for i in range(size):
                set_f32(first + 4 * i, get_f32(v + 4 * i))
        else:
            mix, v0 = row_at(record, MIX, token, head), get_i64(record + 8 * V0) + head
            for i in range(size):
                at = 4 * i
                share = sigmoid_f32(np.float32(get_f32(mix + at) + get_f32(v0 + at)))
                value = get_f32(v + at)
                other = np.float32(np.float32(get_f32(first + at) - value) * share)
                set_f32(v + at, np.float32(value + other))


@inline
def _columns_one_by_one(
    old: int, new: int, r: int, w: int, k: int, v: int, a: int, n: int, out: int, size: int,
    count: int,
) -> None:  # fmt: skip
    for c in range(count):
        seen = np.float32(-read_column(n, old + 4 * c, size))
        value = get_f32(v + 4 * c)
        even = np.float32(0)
        odd = np.float32(0)
        for i in range(size):
            at = 64 * i + 4 * c
            s = np.float32(get_f32(old + at) * get_f32(w + 4 * i))
            s = fma_f32(get_f32(a + 4 * i), seen, s)
            s = fma_f32(get_f32(k + 4 * i), value, s)
            set_f32(new + at, s)
            if i % 2 == 0:
                even = fma_f32(get_f32(r + 4 * i), s, even)
            else:
                odd = fma_f32(get_f32(r + 4 * i), s, odd)
        set_f32(out + 4 * c, np.float32(even + odd))


def _columns(
    isa: Any, old: int, new: int, r: int, w: int, k: int, v: int, a: int, n: int, out: int,
    size: int, count: int,
) -> None:  # fmt: skip
    """Update the first ``count`` of 16 columns from the state at ``old`` to that at ``new``."""
    _columns_one_by_one(old, new, r, w, k, v, a, n, out, size, count)


@inline
def _state_row(old: int, new: int, w: int, k: int, v: Any, a: int, seen: Any) -> Any:
    s = simd.load_f32x16(old) * simd.splat_f32x16(get_f32(w))
    s = simd.fma_f32x16(simd.splat_f32x16(get_f32(a)), seen, s)
    s = simd.fma_f32x16(simd.splat_f32x16(get_f32(k)), v, s)
    simd.store_f32x16(new, s)
    return s


def _columns_vector(
    isa: Any, old: int, new: int, r: int, w: int, k: int, v: int, a: int, n: int, out: int,
    size: int, count: int,
) -> None:  # fmt: skip
    if count < 16:
        _columns_one_by_one(old, new, r, w, k, v, a, n, out, size, count)
    else:
        even = simd.splat_f32x16(_ZERO)
        odd = even
        seen = even - read_columns(n, old, size)
        values = simd.load_f32x16(v)
        for i in range(0, size // 2 * 2, 2):
            j = 4 * i
            s = _state_row(old + 16 * j, new + 16 * j, w + j, k + j, values, a + j, seen)
            even = simd.fma_f32x16(simd.splat_f32x16(get_f32(r + j)), s, even)
            j = 4 * i + 4
            s = _state_row(old + 16 * j, new + 16 * j, w + j, k + j, values, a + j, seen)
            odd = simd.fma_f32x16(simd.splat_f32x16(get_f32(r + j)), s, odd)
        if size % 2 != 0:
            j = 4 * size - 4
            s = _state_row(old + 16 * j, new + 16 * j, w + j, k + j, values, a + j, seen)
            even = simd.fma_f32x16(simd.splat_f32x16(get_f32(r + j)), s, even)
        simd.store_f32x16(out, even + odd)


per_level(_columns_vector)(_columns)


@kernel
def rwkv_rule(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; 16 columns of a head's state belong to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, size, tables, offset = slots_of(record, (HEADS, SIZE, TABLES, LAYER_OFFSET))
    blocks = (size + 15) // 16
    units = heads * blocks
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        column = unit % blocks * 16
        head = 4 * (unit // blocks) * size
        values = head + 4 * column
        at = offset + 64 * size * unit
        for t in range(tokens):
            old, new = states_of(tables, get_i64(record + 8 * POSITIONS), t, at, size)
            _columns(
                isa, old, new, row_at(record, R, t, head), row_at(record, W, t, head),
                row_at(record, K, t, head), row_at(record, V, t, values),
                row_at(record, A, t, head), row_at(record, KEYS, t, head),
                row_at(record, OUT, t, values), size, min(size - column, 16),
            )  # fmt: skip


@inline
def mean_and_divisor(x: int, size: int, eps: Any) -> tuple[Any, Any]:
    """The mean of a head's values, and sqrt(variance + eps)."""
    total = np.float32(0)
    for i in range(size):
        total = np.float32(total + get_f32(x + 4 * i))
    mean = np.float32(total / np.float32(size))
    square = np.float32(0)
    for i in range(size):
        rest = np.float32(get_f32(x + 4 * i) - mean)
        square = np.float32(square + np.float32(rest * rest))
    variance = np.float32(square / np.float32(size))
    return mean, np.float32(np.sqrt(np.float32(variance + eps)))


@kernel
def rwkv_output(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module; a token's head belongs to one thread."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    heads, size, gates = slots_of(record, (HEADS, SIZE, G))
    eps = np.float32(get_f64(record + 8 * EPS))
    for item in range(thread, tokens * heads, positive(threads)):
        token = item // heads
        head = 4 * (item % heads) * size
        out, v = row_at(record, OUT, token, head), row_at(record, V, token, head)
        r, k = row_at(record, R, token, head), row_at(record, K, token, head)
        r_k = get_i64(record + 8 * R_K) + head
        weight, bias = get_i64(record + 8 * NORM) + head, get_i64(record + 8 * NORM_BIAS) + head
        bonus = np.float32(0)
        for i in range(size):
            product = np.float32(get_f32(r + 4 * i) * get_f32(k + 4 * i))
            bonus = np.float32(bonus + np.float32(product * get_f32(r_k + 4 * i)))
        mean, divisor = mean_and_divisor(out, size, eps)
        for i in range(size):
            y = np.float32(np.float32(get_f32(out + 4 * i) - mean) / divisor)
            y = np.float32(np.float32(y * get_f32(weight + 4 * i)) + get_f32(bias + 4 * i))
            y = np.float32(y + np.float32(get_f32(v + 4 * i) * bonus))
            if gates != 0:
                y = np.float32(y * get_f32(row_at(record, G, token, head) + 4 * i))
            set_f32(out + 4 * i, y)
