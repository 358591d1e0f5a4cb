"""Checks of AltUp's kernels, and of those that add rows or keep their largest values."""

from __future__ import annotations

import numpy as np

from trinity_kernels import record
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import add, altup, gaussian_top
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import at, differs, random_numbers, run_kernel

_K = 83


def check_add(kernel: Kernel, level: str, tag: str) -> str | None:
    """Add two rows to two parts of others."""
    op = add
    x = random_numbers().standard_normal((2, _K)).astype(np.float32)
    out = random_numbers().standard_normal((2, 3, _K)).astype(np.float32)
    expected = out.astype(np.float64)
    expected[:, 1:] = (expected[:, 1:] + x[:, None]) * 0.25
    run_kernel(kernel, level, tag, 2, {
        op.X: at(x), op.X_STRIDE: x.strides[0], op.OUT: at(out) + 4 * _K,
        op.OUT_STRIDE: out.strides[0], op.K: _K, op.GROUPS: 2, op.FACTOR: record.float_bits(0.25),
    })  # fmt: skip
    return differs(out, expected, 1e-6)


def check_gaussian_top(kernel: Kernel, level: str, tag: str) -> str | None:
    """Subtract mean + 0.75 deviations from each of two rows, and set what is below 0 to 0."""
    op = gaussian_top
    x = random_numbers().standard_normal((2, _K)).astype(np.float32) + np.float32(0.5)
    rows = x.astype(np.float64)
    least = rows.mean(axis=1, keepdims=True) + 0.75 * rows.std(axis=1, keepdims=True)
    run_kernel(kernel, level, tag, 2, {
        op.X: at(x), op.STRIDE: x.strides[0], op.K: _K, op.FACTOR: record.float_bits(0.75),
    })  # fmt: skip
    return differs(x, np.maximum(rows - least, 0), 1e-6)


def check_altup_predict(kernel: Kernel, level: str, tag: str) -> str | None:
    """Predict the streams of two tokens."""
    op = altup
    streams = random_numbers().standard_normal((2, 4, _K)).astype(np.float32)
    coefs = random_numbers().standard_normal((2, 4, 4)).astype(np.float32)
    expected = streams + np.einsum("tij,tjk->tik", coefs, streams.astype(np.float64))
    run_kernel(kernel, level, tag, 2, {
        op.STREAMS: at(streams), op.STRIDE: streams.strides[0], op.COEFS: at(coefs),
        op.COEFS_STRIDE: coefs.strides[0], op.K: _K,
    })  # fmt: skip
    return differs(streams, expected, 1e-5)


def check_altup_correct(kernel: Kernel, level: str, tag: str) -> str | None:
    """Correct the streams of two tokens, and scale the first one."""
    op = altup
    streams = random_numbers().standard_normal((2, 4, _K)).astype(np.float32)
    x, out = random_numbers().standard_normal((2, 2, _K)).astype(np.float32)
    coefs = random_numbers().standard_normal((2, 4)).astype(np.float32)
    scale = random_numbers().standard_normal(_K).astype(np.float32)
    rows = streams.astype(np.float64)
    expected = rows + (coefs[:, :, None] + 1.0) * (x - rows[:, 0])[:, None]
    run_kernel(kernel, level, tag, 2, {
        op.STREAMS: at(streams), op.STRIDE: streams.strides[0], op.COEFS: at(coefs),
        op.COEFS_STRIDE: coefs.strides[0], op.K: _K, op.X: at(x), op.X_STRIDE: x.strides[0],
        op.OUT: at(out), op.OUT_STRIDE: out.strides[0], op.SCALE: at(scale),
    })  # fmt: skip
    return differs(streams, expected, 1e-5) or differs(out, expected[:, 0] * scale, 1e-5)


def check_match_magnitude(kernel: Kernel, level: str, tag: str) -> str | None:
    """Scale three vectors of each of two rows, one of them nearly 0."""
    op = altup
    x = random_numbers().standard_normal((2, 3, _K)).astype(np.float32)
    x[0, 1] *= np.float32(1e-4)
    target = 3 * random_numbers().standard_normal((2, _K)).astype(np.float32)
    rows = x.astype(np.float64)
    size = np.sqrt(np.maximum((rows**2).mean(axis=2, keepdims=True), 1e-5))
    wanted = np.sqrt((target.astype(np.float64) ** 2).mean(axis=1))
    run_kernel(kernel, level, tag, 2, {
        op.X: at(x), op.X_STRIDE: x.strides[0], op.TARGET: at(target),
        op.TARGET_STRIDE: target.strides[0], op.K: _K, op.GROUPS: 3,
    })  # fmt: skip
    return differs(x, rows / size * wanted[:, None, None], 1e-5)


CHECKS = {
    "add": Check(add.add, NO_TAG, check_add),
    "gaussian_top": Check(gaussian_top.gaussian_top, NO_TAG, check_gaussian_top),
    "altup_predict": Check(altup.altup_predict, NO_TAG, check_altup_predict),
    "altup_correct": Check(altup.altup_correct, NO_TAG, check_altup_correct),
    "match_magnitude": Check(altup.match_magnitude, NO_TAG, check_match_magnitude),
}
