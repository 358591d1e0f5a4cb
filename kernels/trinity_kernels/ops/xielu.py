"""x = xIELU(x), element by element.

For positive x it is ALPHA_P x^2 + BETA x, for others ALPHA_N (exp(min(x, EPS)) - 1 - x) + BETA x.
Shapes: X is M rows of K float32, STRIDE bytes apart; the four numbers are bits of a float64.
Numerics: each step is rounded to float32.
Source: Huang, Deriving Activation Functions Using Integration, 2024 (arXiv 2411.13010), and its
code, which has EPS.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f64, get_i64, slots_of
from trinity_kernels.ops.exponential import exp_f32, exp_f32x16
from trinity_kernels.ops.in_place import in_place
from trinity_kernels.ops.shares import shares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive

X, STRIDE, K, ALPHA_P, ALPHA_N, BETA, EPS = range(3, 10)

_ONE, _ZERO = np.float32(1), np.float32(0)


@inline
def _xielu(v: Any, numbers: Any) -> Any:
    ap, an, beta, eps = numbers
    if v > _ZERO:
        y = np.float32(np.float32(ap * v) * v)
    else:
        e = exp_f32(eps if v > eps else v)
        y = np.float32(np.float32(np.float32(e - _ONE) - v) * an)
    return np.float32(y + np.float32(beta * v))


@inline
def _xielu_f32x16(v: Any, numbers: Any) -> Any:
    ap, an, beta, eps = numbers
    above = simd.splat_f32x16(ap) * v * v
    e = exp_f32x16(simd.min_f32x16(simd.splat_f32x16(eps), v))
    below = (e - simd.splat_f32x16(_ONE) - v) * simd.splat_f32x16(an)
    y = simd.select_less(simd.splat_f32x16(_ZERO), v, above, below)
    return y + simd.splat_f32x16(beta) * v


_replace = in_place(_xielu, _xielu_f32x16)


@kernel
def xielu(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, stride, k = slots_of(record, (X, STRIDE, K))
    ap = np.float32(get_f64(record + 8 * ALPHA_P))
    an = np.float32(get_f64(record + 8 * ALPHA_N))
    beta = np.float32(get_f64(record + 8 * BETA))
    eps = np.float32(get_f64(record + 8 * EPS))
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        _replace(isa, x + t * stride, (ap, an, beta, eps), first, last)
