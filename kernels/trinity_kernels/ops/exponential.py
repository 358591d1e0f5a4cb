"""exp, softplus and sigmoid in float32, with one polynomial for every level.

Numerics: exp(x) = 2**n * p(r), n = rint(x / ln 2), r = x - n ln 2 in two steps, p of degree 6 by
Horner's rule, every product and sum rounded to float32. Relative error below 3e-7 on [-87, 88];
smaller x gives 0 (below -87.3), larger ones are clamped to 88.
Source: the reduction of Cody and Waite; Taylor coefficients suffice for |r| <= ln 2 / 2.
softplus: max(x, 0) + log1p(exp(-|x|)), and log1p(y) = 2 artanh(z), z = y / (2 + y) <= 1/3, by its
series up to z^15, whose rest is below 2e-9 of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.scalars import power_of_two

_LOG2E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_C6, _C5, _C4, _C3 = np.float32(1 / 720), np.float32(1 / 120), np.float32(1 / 24), np.float32(1 / 6)
_C2, _ONE = np.float32(0.5), np.float32(1)
_ARTANH = tuple(np.float32(1 / n) for n in range(3, 17, 2))
_MIN, _MAX = np.float32(-87.3), np.float32(88)


@inline
def exp_f32(x: Any) -> Any:
    """exp of one float32."""
    if x < _MIN:
        return np.float32(0)
    x = min(x, _MAX)
    n = np.float32(np.rint(np.float32(x * _LOG2E)))
    r = np.float32(np.float32(x - np.float32(n * _LN2_HIGH)) - np.float32(n * _LN2_LOW))
    p = np.float32(np.float32(_C6 * r) + _C5)
    p = np.float32(np.float32(p * r) + _C4)
    p = np.float32(np.float32(p * r) + _C3)
    p = np.float32(np.float32(p * r) + _C2)
    p = np.float32(np.float32(p * r) + _ONE)
    p = np.float32(np.float32(p * r) + _ONE)
    return np.float32(p * power_of_two(n))


@inline
def softplus_f32(x: Any) -> Any:
    """log(1 + exp(x)) of one float32."""
    y = exp_f32(np.float32(-abs(x)))
    z = np.float32(y / np.float32(np.float32(2) + y))
    square = np.float32(z * z)
    p = np.float32(np.float32(_ARTANH[6] * square) + _ARTANH[5])
    for i in range(5):
        p = np.float32(np.float32(p * square) + _ARTANH[4 - i])
    p = np.float32(np.float32(p * square) + _ONE)
    return np.float32(max(x, np.float32(0)) + np.float32(np.float32(np.float32(2) * z) * p))


@inline
def sigmoid_f32(x: Any) -> Any:
    """1 / (1 + exp(-x)) of one float32."""
    return np.float32(_ONE / np.float32(_ONE + exp_f32(np.float32(-x))))


@inline
def exp_f32x16(x: Any) -> Any:
    """exp of 16 float32, with the bits of exp_f32."""
    lowest = simd.splat_f32x16(_MIN)
    clamped = simd.min_f32x16(x, simd.splat_f32x16(_MAX))
    clamped = simd.max_f32x16(clamped, lowest)
    n = simd.rint_f32x16(clamped * simd.splat_f32x16(_LOG2E))
    r = (clamped - n * simd.splat_f32x16(_LN2_HIGH)) - n * simd.splat_f32x16(_LN2_LOW)
    one = simd.splat_f32x16(_ONE)
    p = simd.splat_f32x16(_C6) * r + simd.splat_f32x16(_C5)
    p = p * r + simd.splat_f32x16(_C4)
    p = p * r + simd.splat_f32x16(_C3)
    p = p * r + simd.splat_f32x16(_C2)
    p = p * r + one
    p = p * r + one
    bits = (simd.round_i32x16(n) + simd.splat_i32x16(127)) << simd.splat_i32x16(23)
    scaled = p * simd.i32x16_as_f32x16(bits)
    return simd.select_less(x, lowest, simd.splat_f32x16(np.float32(0)), scaled)
