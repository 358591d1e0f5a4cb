"""out = act(gate) * up, element by element.

The tag names the activation:

    silu        x / (1 + exp(-x))
    gelu        the tanh form
    gelu_quick  x / (1 + exp(-1.702 x))
    gelu_erf    x * (1 + erf(x / sqrt(2))) / 2, erf by Abramowitz and Stegun 7.1.26 (error < 2e-7)
    relu2       max(x, 0) squared
    sigmoid     1 / (1 + exp(-x))
    none        x
    swiglu_oai  g * sigmoid(1.702 g) * (u + 1), g = min(gate, 7), u = up limited to -7 .. 7
    swiglu_7    g * sigmoid(g) * u, with the same g and u

Shapes: GATE and OUT are M rows of K float32, STRIDE bytes apart. UP is the same with UP_STRIDE, or
0: then out = act(gate).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i64, set_f32, slots_of
from trinity_kernels.ops.exponential import exp_f32, exp_f32x16, sigmoid_f32
from trinity_kernels.ops.shares import shares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import chosen, per_level

GATE, UP, OUT, STRIDE, UP_STRIDE, K = range(3, 9)
ACTIVATIONS = (
    "silu", "gelu", "gelu_quick", "gelu_erf", "relu2", "sigmoid", "none", "swiglu_oai", "swiglu_7",
)  # fmt: skip

_ONE, _ZERO = np.float32(1), np.float32(0)
_LIMIT, _QUICK_SLOPE = np.float32(7), np.float32(-1.702)
_GELU_CUBE, _GELU_SLOPE = np.float32(0.044715), np.float32(-2 * 0.7978845608028654)
# erfc(z) = (a1 t + ... + a5 t^5) exp(-z^2), t = 1 / (1 + p z), z = |x| / sqrt(2). Each constant is
# half of an a, which gives erfc / 2.
_ERF_P, _HALF = np.float32(0.3275911 * 2**-0.5), np.float32(0.5)
_ERF_A = tuple(
    np.float32(a / 2) for a in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
)
_A1, _A2, _A3, _A4, _A5 = _ERF_A


@inline
def silu(x: Any) -> Any:
    """x / (1 + exp(-x))."""
    return np.float32(x / np.float32(_ONE + exp_f32(np.float32(-x))))


@inline
def gelu(x: Any) -> Any:
    """x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))), which is 0.5 x (1 + tanh(...))."""
    cube = np.float32(np.float32(np.float32(x * x) * x) * _GELU_CUBE)
    return np.float32(
        x / np.float32(_ONE + exp_f32(np.float32(_GELU_SLOPE * np.float32(x + cube))))
    )


@inline
def gelu_erf(x: Any) -> Any:
    """max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2."""
    z = x if x > _ZERO else np.float32(-x)
    t = np.float32(_ONE / np.float32(_ONE + np.float32(_ERF_P * z)))
    p = np.float32(np.float32(_A5 * t) + _A4)
    p = np.float32(np.float32(p * t) + _A3)
    p = np.float32(np.float32(p * t) + _A2)
    p = np.float32(np.float32(p * t) + _A1)
    p = np.float32(p * t)
    e = exp_f32(np.float32(np.float32(np.float32(-z) * z) * _HALF))
    y = x if x > _ZERO else _ZERO
    return np.float32(y - np.float32(z * np.float32(p * e)))


@inline
def relu2(x: Any) -> Any:
    """The square of max(x, 0)."""
    y = x if x > _ZERO else _ZERO
    return np.float32(y * y)


@inline
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)); NaN and infinite x give NaN."""
    return np.float32(sigmoid_f32(x) + np.float32(x * _ZERO))


@inline
def gelu_quick(x: Any) -> Any:
    """x / (1 + exp(-1.702 x))."""
    return np.float32(x / np.float32(_ONE + exp_f32(np.float32(_QUICK_SLOPE * x))))


@inline
def limited_silu(x: Any) -> Any:
    """y / (1 + exp(-1.702 y)) for y = min(x, 7)."""
    return gelu_quick(_LIMIT if x > _LIMIT else x)


@inline
def _silu_up_to_7(x: Any) -> Any:
    return silu(_LIMIT if x > _LIMIT else x)


@inline
def _as_it_is(x: Any) -> Any:
    return x


@inline
def _limited(x: Any) -> Any:
    y = _LIMIT if x > _LIMIT else x
    return -_LIMIT if y < -_LIMIT else y


@inline
def _limited_factor(x: Any) -> Any:
    return np.float32(_limited(x) + _ONE)


_ACTS = {
    "silu": silu, "gelu": gelu, "gelu_quick": gelu_quick, "gelu_erf": gelu_erf, "relu2": relu2,
    "sigmoid": sigmoid, "none": _as_it_is, "swiglu_oai": limited_silu, "swiglu_7": _silu_up_to_7,
}  # fmt: skip
# The factor that a value of up stands for.
_FACTORS = dict.fromkeys(_ACTS, _as_it_is)
_FACTORS |= {"swiglu_oai": _limited_factor, "swiglu_7": _limited}


def _by_tag(functions: Mapping[str, Any]) -> Any:
    """A function of (qt, x) that calls the function of this tag."""

    @chosen
    def of_tag(qt: Any, x: Any) -> Any:
        function = functions[qt.value]
        return lambda qt, x: function(x)

    return of_tag


_act = _by_tag(_ACTS)
_factor = _by_tag(_FACTORS)


@inline
def _one_by_one(qt: Any, gate: int, up: int, out: int, first: int, last: int) -> None:
    for i in range(first, last):
        y = _act(qt, get_f32(gate + 4 * i))
        if up != 0:
            y = np.float32(y * _factor(qt, get_f32(up + 4 * i)))
        set_f32(out + 4 * i, y)


def _range(isa: Any, qt: Any, gate: int, up: int, out: int, first: int, last: int) -> None:
    _one_by_one(qt, gate, up, out, first, last)


@inline
def silu_vector(x: Any) -> Any:
    """x / (1 + exp(-x)) of 16 float32."""
    one = simd.splat_f32x16(_ONE)
    return x / (one + exp_f32x16(simd.splat_f32x16(_ZERO) - x))


@inline
def _gelu_vector(x: Any) -> Any:
    cube = x * x * x * simd.splat_f32x16(_GELU_CUBE)
    exponent = simd.splat_f32x16(_GELU_SLOPE) * (x + cube)
    return x / (simd.splat_f32x16(_ONE) + exp_f32x16(exponent))


@inline
def _gelu_erf_vector(x: Any) -> Any:
    zero = simd.splat_f32x16(_ZERO)
    one = simd.splat_f32x16(_ONE)
    y = simd.max_f32x16(x, zero)
    z = simd.max_f32x16(x, zero - x)
    t = one / (one + simd.splat_f32x16(_ERF_P) * z)
    p = simd.splat_f32x16(_A5) * t + simd.splat_f32x16(_A4)
    p = p * t + simd.splat_f32x16(_A3)
    p = p * t + simd.splat_f32x16(_A2)
    p = p * t + simd.splat_f32x16(_A1)
    p = p * t
    e = exp_f32x16((zero - z) * z * simd.splat_f32x16(_HALF))
    return y - z * (p * e)


@inline
def _relu2_vector(x: Any) -> Any:
    y = simd.max_f32x16(x, simd.splat_f32x16(_ZERO))
    return y * y


@inline
def _sigmoid_vector(x: Any) -> Any:
    one = simd.splat_f32x16(_ONE)
    zero = simd.splat_f32x16(_ZERO)
    return one / (one + exp_f32x16(zero - x)) + x * zero


@inline
def _gelu_quick_vector(x: Any) -> Any:
    exponent = simd.splat_f32x16(_QUICK_SLOPE) * x
    return x / (simd.splat_f32x16(_ONE) + exp_f32x16(exponent))


@inline
def _limited_silu_vector(x: Any) -> Any:
    return _gelu_quick_vector(simd.min_f32x16(simd.splat_f32x16(_LIMIT), x))


@inline
def _silu_up_to_7_vector(x: Any) -> Any:
    return silu_vector(simd.min_f32x16(simd.splat_f32x16(_LIMIT), x))


@inline
def _limited_vector(x: Any) -> Any:
    limit = simd.splat_f32x16(_LIMIT)
    return simd.max_f32x16(simd.splat_f32x16(-_LIMIT), simd.min_f32x16(limit, x))


@inline
def _limited_factor_vector(x: Any) -> Any:
    return _limited_vector(x) + simd.splat_f32x16(_ONE)


_ACT_VECTORS = {
    "silu": silu_vector, "gelu": _gelu_vector, "gelu_quick": _gelu_quick_vector,
    "gelu_erf": _gelu_erf_vector,
    "relu2": _relu2_vector, "sigmoid": _sigmoid_vector, "none": _as_it_is,
    "swiglu_oai": _limited_silu_vector, "swiglu_7": _silu_up_to_7_vector,
}  # fmt: skip
_FACTOR_VECTORS = dict.fromkeys(_ACTS, _as_it_is)
_FACTOR_VECTORS |= {"swiglu_oai": _limited_factor_vector, "swiglu_7": _limited_vector}
_act_vector = _by_tag(_ACT_VECTORS)
_factor_vector = _by_tag(_FACTOR_VECTORS)


def _range_vector(isa: Any, qt: Any, gate: int, up: int, out: int, first: int, last: int) -> None:
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        y = _act_vector(qt, simd.load_f32x16(gate + 4 * i))
        if up != 0:
            y = y * _factor_vector(qt, simd.load_f32x16(up + 4 * i))
        simd.store_f32x16(out + 4 * i, y)
    _one_by_one(qt, gate, up, out, whole, last)


per_level(_range_vector)(_range)


@kernel
def gated(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    gate, up, up_stride, out, stride, k = slots_of(record, (GATE, UP, UP_STRIDE, OUT, STRIDE, K))
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        factors = 0
        if up != 0:
            factors = up + t * up_stride
        _range(isa, qt, gate + t * stride, factors, out + t * stride, first, last)
