"""out = out + sigmoid(gate) * x, with one gate for each row.

Shapes: GATE is M float32, GATE_STRIDE bytes apart; X and OUT are M rows of K float32, X_STRIDE and
OUT_STRIDE bytes apart.
Numerics: 1 / (1 + exp(-gate)), times x, plus out, each step rounded separately.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_i64, set_f32, slots_of
from trinity_kernels.ops.exponential import sigmoid_f32
from trinity_kernels.ops.shares import shares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

GATE, GATE_STRIDE, X, X_STRIDE, OUT, OUT_STRIDE, K = range(3, 10)


@inline
def _one_by_one(factor: Any, x: int, out: int, first: int, last: int) -> None:
    for i in range(first, last):
        y = np.float32(get_f32(x + 4 * i) * factor)
        set_f32(out + 4 * i, np.float32(get_f32(out + 4 * i) + y))


def _range(isa: Any, factor: Any, x: int, out: int, first: int, last: int) -> None:
    _one_by_one(factor, x, out, first, last)


def _range_vector(isa: Any, factor: Any, x: int, out: int, first: int, last: int) -> None:
    whole = first + (last - first) // 16 * 16
    for i in range(first, whole, 16):
        y = simd.load_f32x16(x + 4 * i) * simd.splat_f32x16(factor)
        simd.store_f32x16(out + 4 * i, simd.load_f32x16(out + 4 * i) + y)
    _one_by_one(factor, x, out, whole, last)


per_level(_range_vector)(_range)


@kernel
def gated_add(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    gate, gate_stride, x, x_stride = slots_of(record, (GATE, GATE_STRIDE, X, X_STRIDE))
    out, out_stride, k = slots_of(record, (OUT, OUT_STRIDE, K))
    start, step, first, last = shares(tokens, k, thread, threads)
    for t in range(start, tokens, positive(step)):
        factor = sigmoid_f32(get_f32(gate + t * gate_stride))
        _range(isa, factor, x + t * x_stride, out + t * out_stride, first, last)
