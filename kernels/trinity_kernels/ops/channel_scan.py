"""Mamba-1's selective scan: each channel has a state of its own, and decays of its own.

With step = softplus(dt) a channel i of a token computes for each key n
    S[n, i] = exp(step[i] * A[n, i]) * S[n, i] + b[n] * step[i] * x[i]
and out[i] = sum over n of c[n] * S[n, i] + D[i] * x[i].
Shapes: X, DT and OUT are M rows of WIDTH float32, B and C of KEYS; each has a stride of its own.
A is (KEYS, WIDTH) float32, D is WIDTH float32. TABLES, POSITIONS and LAYER_OFFSET say where the
state is stored: as one head of KEYS keys and WIDTH values (state.py, also for the order of sums).
The tokens of a sequence are in order.
Source: Gu and Dao, Mamba, 2023 (arXiv 2312.00752), algorithm 2; D as in its code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import fma_f32, get_f32, get_i64, set_f32, slots_of
from trinity_kernels.ops.exponential import exp_f32, exp_f32x16, softplus_f32
from trinity_kernels.ops.state import states_of
from trinity_kernels.record import ROWS
from trinity_kernels.tags import per_level

X, STRIDE, B, B_STRIDE, C, C_STRIDE, DT, DT_STRIDE, A, D, OUT, OUT_STRIDE = range(3, 15)
POSITIONS, TABLES, LAYER_OFFSET, KEYS, WIDTH = range(15, 20)


@inline
def _one_by_one(
    old: int, new: int, a: int, b: int, c: int, x: int, step: int, d: int, out: int, keys: int,
    width: int, count: int,
) -> None:  # fmt: skip
    for i in range(count):
        of_step = get_f32(step + 4 * i)
        value = get_f32(x + 4 * i)
        u = np.float32(value * of_step)
        even = np.float32(0)
        odd = np.float32(0)
        for n in range(keys):
            decay = exp_f32(np.float32(of_step * get_f32(a + 4 * (n * width + i))))
            at = 64 * n + 4 * i
            s = fma_f32(get_f32(b + 4 * n), u, np.float32(get_f32(old + at) * decay))
            set_f32(new + at, s)
            if n % 2 == 0:
                even = fma_f32(get_f32(c + 4 * n), s, even)
            else:
                odd = fma_f32(get_f32(c + 4 * n), s, odd)
        y = np.float32(even + odd)
        set_f32(out + 4 * i, np.float32(y + np.float32(value * get_f32(d + 4 * i))))


def _token(
    isa: Any, old: int, new: int, a: int, b: int, c: int, x: int, step: int, d: int, out: int,
    keys: int, width: int, count: int,
) -> None:  # fmt: skip
    """Update the first ``count`` of 16 channels from the state at ``old`` to that at ``new``."""
    _one_by_one(old, new, a, b, c, x, step, d, out, keys, width, count)


@inline
def _row(old: int, new: int, a: int, b: int, step: Any, u: Any) -> Any:
    decay = exp_f32x16(step * simd.load_f32x16(a))
    s = simd.fma_f32x16(simd.splat_f32x16(get_f32(b)), u, simd.load_f32x16(old) * decay)
    simd.store_f32x16(new, s)
    return s


def _vector_token(
    isa: Any, old: int, new: int, a: int, b: int, c: int, x: int, step: int, d: int, out: int,
    keys: int, width: int, count: int,
) -> None:  # fmt: skip
    if count < 16:
        _one_by_one(old, new, a, b, c, x, step, d, out, keys, width, count)
    else:
        values = simd.load_f32x16(x)
        steps = simd.load_f32x16(step)
        u = values * steps
        even = simd.splat_f32x16(np.float32(0))
        odd = even
        for n in range(0, keys // 2 * 2, 2):
            at = a + 4 * n * width
            s = _row(old + 64 * n, new + 64 * n, at, b + 4 * n, steps, u)
            even = simd.fma_f32x16(simd.splat_f32x16(get_f32(c + 4 * n)), s, even)
            after = 64 * n + 64
            s = _row(old + after, new + after, at + 4 * width, b + 4 * n + 4, steps, u)
            odd = simd.fma_f32x16(simd.splat_f32x16(get_f32(c + 4 * n + 4)), s, odd)
        if keys % 2 != 0:
            n = keys - 1
            s = _row(old + 64 * n, new + 64 * n, a + 4 * n * width, b + 4 * n, steps, u)
            even = simd.fma_f32x16(simd.splat_f32x16(get_f32(c + 4 * n)), s, even)
        simd.store_f32x16(out, even + odd + values * simd.load_f32x16(d))


per_level(_vector_token)(_token)


@kernel
def channel_scan(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Process all tokens in order; 16 channels belong to one thread.

    The steps replace the values of DT.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    keys, width, tables, offset = slots_of(record, (KEYS, WIDTH, TABLES, LAYER_OFFSET))
    units = (width + 15) // 16
    for unit in range(units * thread // threads, units * (thread + 1) // threads):
        first = 64 * unit
        count = min(width - 16 * unit, 16)
        at = offset + 64 * keys * unit
        for t in range(tokens):
            old, new = states_of(tables, get_i64(record + 8 * POSITIONS), t, at, keys)
            step = get_i64(record + 8 * DT) + t * get_i64(record + 8 * DT_STRIDE) + first
            for i in range(count):
                set_f32(step + 4 * i, softplus_f32(get_f32(step + 4 * i)))
            _token(
                isa, old, new, get_i64(record + 8 * A) + first,
                get_i64(record + 8 * B) + t * get_i64(record + 8 * B_STRIDE),
                get_i64(record + 8 * C) + t * get_i64(record + 8 * C_STRIDE),
                get_i64(record + 8 * X) + t * get_i64(record + 8 * STRIDE) + first, step,
                get_i64(record + 8 * D) + first,
                get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + first, keys,
                width, count,
            )  # fmt: skip
