"""x = act(gate) * x, with one gate for each head of a row; NaN gates give NaN.

The tag names the activation: sigmoid is 1 / (1 + exp(-x)), softplus is log(1 + exp(x)).
Shapes: GATE is M rows of HEADS float32, X is M rows of HEADS x WIDTH, GATE_STRIDE and X_STRIDE
bytes apart.
Numerics: the activation as in exponential.py, then one product, rounded to float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import kernel
from trinity_kernels.memory import get_f32, get_i64, slots_of
from trinity_kernels.ops.exponential import sigmoid_f32, softplus_f32
from trinity_kernels.ops.in_place import multiply
from trinity_kernels.ops.shares import shares
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import chosen

X, X_STRIDE, GATE, GATE_STRIDE, HEADS, WIDTH = range(3, 9)

_ACTIVATIONS = {"sigmoid": sigmoid_f32, "softplus": softplus_f32}
ACTIVATIONS = tuple(_ACTIVATIONS)


@chosen
def _factor(qt: Any, x: Any) -> Any:
    function = _ACTIVATIONS[qt.value]
    return lambda qt, x: np.float32(function(x) + np.float32(x * np.float32(0)))


@kernel
def head_gate(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """See the module, and shares.py."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    x, x_stride, gate, gate_stride = slots_of(record, (X, X_STRIDE, GATE, GATE_STRIDE))
    heads, width = slots_of(record, (HEADS, WIDTH))
    start, step, first, last = shares(tokens, heads, thread, threads)
    for t in range(start, tokens, positive(step)):
        for head in range(first, last):
            factor = _factor(qt, get_f32(gate + t * gate_stride + 4 * head))
            multiply(isa, x + t * x_stride + 4 * head * width, factor, 0, width)
