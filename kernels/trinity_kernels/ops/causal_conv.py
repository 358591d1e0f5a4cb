"""x = act(conv(x) + bias) in place: a causal convolution of each channel over TAPS tokens.

The tag is the activation, "silu" or "none". Shapes: X is M rows of K float32, STRIDE bytes apart;
WEIGHT is TAPS rows of K float32, the last for the present token; BIAS is K float32, or 0. The state
is the last TAPS - 1 rows of input, the oldest first, and zeros before position 0. TABLES, POSITIONS
and LAYER_OFFSET say where it is stored (state.py). The tokens of a sequence are in order.
Numerics: products are summed from the oldest to the present token with fused multiply-add.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import fma_f32, get_f32, get_i64, set_f32, slots_of
from trinity_kernels.ops.activation import silu, silu_vector
from trinity_kernels.ops.state import own_values, states_around
from trinity_kernels.record import ROWS
from trinity_kernels.tags import chosen, per_level

X, STRIDE, WEIGHT, BIAS, K, TAPS, POSITIONS, TABLES, LAYER_OFFSET = range(3, 12)
ACTIVATIONS = ("none", "silu")


@inline
def _as_it_is(x: Any) -> Any:
    return x


@chosen
def _act(qt: Any, x: Any) -> Any:
    function = silu if qt.value == "silu" else _as_it_is
    return lambda qt, x: function(x)


@chosen
def _act_vector(qt: Any, x: Any) -> Any:
    function = silu_vector if qt.value == "silu" else _as_it_is
    return lambda qt, x: function(x)


@inline
def _channel(
    qt: Any, x: int, weight: int, bias: int, k: int, taps: int, old: int, new: int, c: int
) -> None:
    """Process one channel of a token; ``old`` is 0 at the first position."""
    present = get_f32(x + 4 * c)
    total = np.float32(0)
    for j in range(taps - 1):
        before = np.float32(0)
        if old != 0:
            before = get_f32(old + 4 * (j * k + c))
        total = fma_f32(get_f32(weight + 4 * (j * k + c)), before, total)
        if j > 0:
            set_f32(new + 4 * ((j - 1) * k + c), before)
    set_f32(new + 4 * ((taps - 2) * k + c), present)
    total = fma_f32(get_f32(weight + 4 * ((taps - 1) * k + c)), present, total)
    if bias != 0:
        total = np.float32(total + get_f32(bias + 4 * c))
    set_f32(x + 4 * c, _act(qt, total))


def _token(
    isa: Any, qt: Any, x: int, weight: int, bias: int, k: int, taps: int, old: int, new: int,
    first: int, last: int,
) -> None:  # fmt: skip
    for c in range(first, last):
        _channel(qt, x, weight, bias, k, taps, old, new, c)


def _vector_token(
    isa: Any, qt: Any, x: int, weight: int, bias: int, k: int, taps: int, old: int, new: int,
    first: int, last: int,
) -> None:  # fmt: skip
    whole = first + (last - first) // 16 * 16
    for c in range(first, whole, 16):
        present = simd.load_f32x16(x + 4 * c)
        total = simd.splat_f32x16(np.float32(0))
        for j in range(taps - 1):
            before = simd.splat_f32x16(np.float32(0))
            if old != 0:
                before = simd.load_f32x16(old + 4 * (j * k + c))
            total = simd.fma_f32x16(simd.load_f32x16(weight + 4 * (j * k + c)), before, total)
            if j > 0:
                simd.store_f32x16(new + 4 * ((j - 1) * k + c), before)
        simd.store_f32x16(new + 4 * ((taps - 2) * k + c), present)
        total = simd.fma_f32x16(simd.load_f32x16(weight + 4 * ((taps - 1) * k + c)), present, total)
        if bias != 0:
            total = total + simd.load_f32x16(bias + 4 * c)
        simd.store_f32x16(x + 4 * c, _act_vector(qt, total))
    for c in range(whole, last):
        _channel(qt, x, weight, bias, k, taps, old, new, c)


per_level(_vector_token)(_token)


@kernel
def causal_conv(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Convolve; a thread has some channels of all tokens."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    weight, bias, k = slots_of(record, (WEIGHT, BIAS, K))
    taps, tables, offset = slots_of(record, (TAPS, TABLES, LAYER_OFFSET))
    first, last = own_values(k, thread, threads)
    for t in range(tokens):
        old, new = states_around(tables, get_i64(record + 8 * POSITIONS), t, offset)
        x = get_i64(record + 8 * X) + t * get_i64(record + 8 * STRIDE)
        _token(isa, qt, x, weight, bias, k, taps, old, new, first, last)
