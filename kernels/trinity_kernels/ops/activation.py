"""out = act(gate) * up, element by element: SiLU, GELU (tanh form) or squared ReLU.

Shapes: GATE, UP, OUT are M rows of K float32. One token's elements are shared out in multiples of
64; more tokens are shared out whole. The quantization type's tag carries the activation's name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import choose, inline, kernel
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_f32, get_i64, set_f32
from trinity_kernels.ops.exponential import exp_f32
from trinity_kernels.record import ROWS
from trinity_kernels.tags import per_level

if not jit_disabled():
    from trinity_kernels import simd
    from trinity_kernels.ops.exponential import exp_f32x16

GATE, UP, OUT, STRIDE, K = range(3, 8)
ACTIVATIONS = ("silu", "gelu", "relu2")

_ONE, _ZERO = np.float32(1), np.float32(0)
_GELU_CUBE, _GELU_SLOPE = np.float32(0.044715), np.float32(-2 * 0.7978845608028654)


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
def relu2(x: Any) -> Any:
    """max(x, 0) squared."""
    y = x if x > _ZERO else _ZERO
    return np.float32(y * y)


def _one(isa: Any, qt: Any, x: Any) -> Any:
    return {"silu": silu, "gelu": gelu, "relu2": relu2}[qt.value](x)


@choose(_one)
def _one_of(isa: Any, qt: Any, x: Any) -> Any:
    function = {"silu": silu, "gelu": gelu, "relu2": relu2}[qt.value]
    return lambda isa, qt, x: function(x)


def _range(isa: Any, qt: Any, gate: int, up: int, out: int, first: int, last: int) -> None:
    for i in range(first, last):
        y = _one(isa, qt, get_f32(gate + 4 * i))
        set_f32(out + 4 * i, np.float32(y * get_f32(up + 4 * i)))


if not jit_disabled():

    @inline
    def _silu_vector(x: Any) -> Any:
        one = simd.splat_f32x16(_ONE)
        return x / (one + exp_f32x16(simd.splat_f32x16(_ZERO) - x))

    @inline
    def _gelu_vector(x: Any) -> Any:
        cube = x * x * x * simd.splat_f32x16(_GELU_CUBE)
        exponent = simd.splat_f32x16(_GELU_SLOPE) * (x + cube)
        return x / (simd.splat_f32x16(_ONE) + exp_f32x16(exponent))

    @inline
    def _relu2_vector(x: Any) -> Any:
        y = simd.max_f32x16(x, simd.splat_f32x16(_ZERO))
        return y * y


def _one_vector(qt: Any, x: Any) -> Any: ...


@choose(_one_vector)
def _one_vector_of(qt: Any, x: Any) -> Any:
    function = {"silu": _silu_vector, "gelu": _gelu_vector, "relu2": _relu2_vector}[qt.value]
    return lambda qt, x: function(x)


def _range_vector(isa: Any, qt: Any, gate: int, up: int, out: int, first: int, last: int) -> None:
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        y = _one_vector(qt, simd.load_f32x16(gate + 4 * i)) * simd.load_f32x16(up + 4 * i)
        simd.store_f32x16(out + 4 * i, y)
    for i in range(whole, last):
        y1 = _one(isa, qt, get_f32(gate + 4 * i))
        set_f32(out + 4 * i, np.float32(y1 * get_f32(up + 4 * i)))


per_level(_range_vector)(_range)


@kernel
def gated(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    gate = get_i64(record + 8 * GATE)
    up = get_i64(record + 8 * UP)
    out = get_i64(record + 8 * OUT)
    stride = get_i64(record + 8 * STRIDE)
    k = get_i64(record + 8 * K)
    if tokens == 1:
        # The same shares as quantize_q8's, so that no thread waits between the two.
        blocks = (k + 511) // 512 * 16
        first = min(k, blocks * thread // threads * 32)
        last = min(k, blocks * (thread + 1) // threads * 32)
        _range(isa, qt, gate, up, out, first, last)
        return
    for t in range(thread, tokens, threads):
        _range(isa, qt, gate + t * stride, up + t * stride, out + t * stride, 0, k)
