"""Checks of the kernels that quantize activations (ops/matmul/quantize.py): equal bytes."""

from __future__ import annotations

from functools import partial

import numpy as np

from trinity_kernels._jit import Kernel
from trinity_kernels.ops.matmul import quantize as op
from trinity_kernels.selftest.activation_forms import form_of
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import at, random_numbers, run_kernel, same


def check_quantize(form: str, kernel: Kernel, level: str, tag: str) -> str | None:
    """Quantize a usual row, one of large values and one whose first half is zeros."""
    k = 384 if form == "ternary" else 32 * 19
    x = random_numbers().standard_normal((3, k)).astype(np.float32)
    x[1] *= 1e4
    x[2, : k // 2] = 0
    expected, _ = form_of(form, x)
    out = np.zeros_like(expected)
    run_kernel(kernel, level, tag, 3, {
        op.X: at(x), op.X_STRIDE: x.strides[0], op.OUT: at(out), op.OUT_STRIDE: out.strides[0],
        op.K: k,
    })  # fmt: skip
    return same(out, expected)


CHECKS = {
    "quantize_ternary": Check(op.quantize_ternary, NO_TAG, partial(check_quantize, "ternary")),
    "quantize_q8": Check(op.quantize_q8, NO_TAG, partial(check_quantize, "q8")),
    "quantize_q19": Check(op.quantize_q19, NO_TAG, partial(check_quantize, "q19")),
}
