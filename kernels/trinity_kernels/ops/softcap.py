"""x = c * tanh(x / c), element by element, which limits scores and logits to -c .. c.

Shapes: X is M rows of K float32, STRIDE bytes apart; CAP is the bits of a float64.
Numerics: c - 2 c / (exp(2 x / c) + 1), each step rounded to float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_f64, get_i64, set_f32, slots_of
from trinity_kernels.ops.exponential import exp_f32, exp_f32x16
from trinity_kernels.ops.shares import shares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

X, STRIDE, K, CAP = range(3, 7)


@inline
def capped(x: Any, cap: Any) -> Any:
    """c * tanh(x / c) of one float32."""
    e = exp_f32(np.float32(np.float32(x / cap) * np.float32(2)))
    return np.float32(cap - np.float32(np.float32(2) * cap) / np.float32(e + np.float32(1)))


@inline
def capped_f32x16(x: Any, cap: Any) -> Any:
    """16 float32, with the cap in every lane and the bits of ``capped``."""
    one, two = simd.splat_f32x16(np.float32(1)), simd.splat_f32x16(np.float32(2))
    return cap - two * cap / (exp_f32x16(x / cap * two) + one)


@inline
def _one_by_one(x: int, cap: Any, first: int, last: int) -> None:
    for i in range(first, last):
        set_f32(x + 4 * i, capped(get_f32(x + 4 * i), cap))


def _range(isa: Any, x: int, cap: Any, first: int, last: int) -> None:
    _one_by_one(x, cap, first, last)


def _range_vector(isa: Any, x: int, cap: Any, first: int, last: int) -> None:
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        simd.store_f32x16(
            x + 4 * i, capped_f32x16(simd.load_f32x16(x + 4 * i), simd.splat_f32x16(cap))
        )
    _one_by_one(x, cap, whole, last)


per_level(_range_vector)(_range)


@kernel
def softcap(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, stride, k = slots_of(record, (X, STRIDE, K))
    cap = np.float32(get_f64(record + 8 * CAP))
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        _range(isa, x + t * stride, cap, first, last)
