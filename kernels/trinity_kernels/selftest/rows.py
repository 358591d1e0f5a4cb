"""Checks of the kernels that map rows of float32 to rows: norms, activations, copies, sums."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import record
from trinity_kernels._jit import Kernel
from trinity_kernels.ops import (
    activation,
    clamp,
    copy,
    gated_add,
    hadamard,
    head_gate,
    norm,
    scale,
    softcap,
    squares,
    xielu,
)
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import at, differs, random_numbers, run_kernel, same


def check_norm(kernel: Kernel, level: str, tag: str) -> str | None:
    """Normalize two vectors of each of two rows; each has a weight and a bias of its own."""
    op, k = norm, 83
    x = random_numbers().standard_normal((4, 2 * k)).astype(np.float32) + np.float32(0.5)
    weight, bias = random_numbers().standard_normal((2, 2, k)).astype(np.float32)
    out, index = np.zeros((2, 2 * k), np.float32), np.array([3, 1], np.int32)
    values = {
        op.X: at(x), op.X_STRIDE: x.strides[0], op.WEIGHT: at(weight), op.OUT: at(out),
        op.OUT_STRIDE: out.strides[0], op.K: k, op.EPS: record.float_bits(1e-5), op.GROUPS: 2,
        op.WEIGHT_STEP: 4 * k, op.BIAS: at(bias), op.INDEX: at(index),
    }  # fmt: skip
    run_kernel(kernel, level, tag, 2, values)
    rows = x[index].reshape(2, 2, k).astype(np.float64)
    if tag == "layer":
        rows -= rows.mean(axis=2, keepdims=True)
    expected = rows / np.sqrt((rows**2).mean(axis=2, keepdims=True) + 1e-5) * weight + bias
    return differs(out, expected.reshape(2, 2 * k), 1e-5)


def check_gated(kernel: Kernel, level: str, tag: str) -> str | None:
    """Apply the activation to usual and extreme values, without factors and with them."""
    op, k = activation, 165
    gate, up = random_numbers().standard_normal((2, 2, k)).astype(np.float32) * 4
    gate[0, :4] = -100, 100, 0, -20
    x, out = gate.astype(np.float64), np.zeros((2, k), np.float32)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    low = np.minimum(x, 7)
    expected = {
        "silu": x / (1 + np.exp(-x)),
        "gelu": 0.5 * x * (1 + np.tanh(inner)),
        "gelu_quick": x / (1 + np.exp(-1.702 * x)),
        "gelu_erf": 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
        "relu2": np.maximum(x, 0) ** 2,
        "sigmoid": 1 / (1 + np.exp(-x)),
        "none": x,
        "swiglu_oai": low / (1 + np.exp(-1.702 * low)),
        "swiglu_7": low / (1 + np.exp(-low)),
    }[tag]
    factors = np.clip(up, -7, 7) + float(tag == "swiglu_oai") if tag[:6] == "swiglu" else up
    values = {op.GATE: at(gate), op.OUT: at(out), op.STRIDE: 4 * k, op.UP_STRIDE: 4 * k, op.K: k}
    run_kernel(kernel, level, tag, 2, values)
    error = differs(out, expected, 1e-5 + 2e-6 * np.abs(expected))
    if error:
        return f"without factors, {error}"
    run_kernel(kernel, level, tag, 2, values | {op.UP: at(up)})
    expected = expected * factors
    return differs(out, expected, 1e-5 + 2e-6 * np.abs(expected))


def check_gated_add(kernel: Kernel, level: str, tag: str) -> str | None:
    """Add two rows by a negative and a positive gate."""
    op, k = gated_add, 165
    gate = np.array([[-2.5, 0], [1.25, 0]], np.float32)
    x, out = random_numbers().standard_normal((2, 2, k)).astype(np.float32)
    expected = out + 1 / (1 + np.exp(-gate[:, :1].astype(np.float64))) * x
    run_kernel(kernel, level, tag, 2, {
        op.GATE: at(gate), op.GATE_STRIDE: 8, op.X: at(x), op.X_STRIDE: 4 * k,
        op.OUT: at(out), op.OUT_STRIDE: 4 * k, op.K: k,
    })  # fmt: skip
    return differs(out, expected, 1e-6)


def check_head_gate(kernel: Kernel, level: str, tag: str) -> str | None:
    """Multiply the heads of two rows by gates, some of them large."""
    op, width = head_gate, 37
    gate = random_numbers().standard_normal((2, 5)).astype(np.float32) * 3
    gate[0, :3] = -80, 80, 0
    x = random_numbers().standard_normal((2, 5, width)).astype(np.float32)
    exact = gate.astype(np.float64)
    factor = {"sigmoid": 1 / (1 + np.exp(-exact)), "softplus": np.logaddexp(0, exact)}[tag]
    expected = x * factor[:, :, None]
    run_kernel(kernel, level, tag, 2, {
        op.X: at(x), op.X_STRIDE: x.strides[0], op.GATE: at(gate),
        op.GATE_STRIDE: gate.strides[0], op.HEADS: 5, op.WIDTH: width,
    })  # fmt: skip
    return differs(x, expected, 1e-6 + 1e-6 * np.abs(expected))


def _replace(
    kernel: Kernel, level: str, tag: str, x: NDArray[np.float32], numbers: dict[int, float]
) -> None:
    """Run a kernel that replaces the rows of ``x``; ``numbers`` are slots with float64.

    These kernels have the same slots for X, STRIDE and K.
    """
    values = {slot: record.float_bits(number) for slot, number in numbers.items()}
    values |= {scale.X: at(x), scale.STRIDE: x.strides[0], scale.K: x.shape[1]}
    run_kernel(kernel, level, tag, len(x), values)


def check_scale(kernel: Kernel, level: str, tag: str) -> str | None:
    """Scale two rows."""
    op, k = scale, 165
    x = random_numbers().standard_normal((2, k)).astype(np.float32)
    expected = x * np.float64(0.3)
    _replace(kernel, level, tag, x, {op.FACTOR: 0.3})
    return differs(x, expected, 1e-6)


def check_softcap(kernel: Kernel, level: str, tag: str) -> str | None:
    """Cap values from far below the cap to far above it."""
    op, k = softcap, 165
    x = random_numbers().standard_normal((2, k)).astype(np.float32) * 20
    x[0, :4] = 1e4, -1e4, 0, 1e-3
    expected = 15 * np.tanh(x.astype(np.float64) / 15)
    _replace(kernel, level, tag, x, {op.CAP: 15})
    return differs(x, expected, 1e-5)


def check_clamp(kernel: Kernel, level: str, tag: str) -> str | None:
    """Limit values, of which some are infinite."""
    op, k = clamp, 165
    x = random_numbers().standard_normal((2, k)).astype(np.float32)
    x[0, :4] = np.inf, -np.inf, 0, 1e-3
    out = np.zeros_like(x)
    run_kernel(kernel, level, tag, 2, {
        op.X: at(x), op.X_STRIDE: 4 * k, op.OUT: at(out), op.OUT_STRIDE: 4 * k, op.K: k,
        op.LOW: record.float_bits(-0.5), op.HIGH: record.float_bits(1.0),
    })  # fmt: skip
    return differs(out, np.clip(x, -0.5, 1.0), 0)


def check_xielu(kernel: Kernel, level: str, tag: str) -> str | None:
    """Apply the activation to usual, small and extreme values."""
    op, k, eps = xielu, 165, -1e-6
    x = random_numbers().standard_normal((2, k)).astype(np.float32) * 3
    x[0, :5] = 50, -100, 0, -1e-7, 1e-3
    v = x.astype(np.float64)
    below = 1.3 * (np.expm1(np.minimum(v, eps)) - v)
    expected = np.where(v > 0, 0.8 * v * v, below) + 0.5 * v
    _replace(kernel, level, tag, x, {op.ALPHA_P: 0.8, op.ALPHA_N: 1.3, op.BETA: 0.5, op.EPS: eps})
    return differs(x, expected, 1e-6 + 1e-6 * np.abs(expected))


def check_copy(kernel: Kernel, level: str, tag: str) -> str | None:
    """Copy pieces of rows of different strides."""
    op, width = copy, 37
    x, out = random_numbers().standard_normal((2, 2, 3, 40)).astype(np.float32)
    expected = out.copy()
    expected[:, :, 3:] = x[:, :, :width]
    run_kernel(kernel, level, tag, 2, {
        op.X: at(x), op.X_STRIDE: x.strides[0], op.X_STEP: x.strides[1], op.GROUPS: 3,
        op.OUT: at(out) + 12, op.OUT_STRIDE: out.strides[0], op.OUT_STEP: out.strides[1],
        op.WIDTH: width,
    })  # fmt: skip
    return same(out, expected)


def check_hadamard(kernel: Kernel, level: str, tag: str) -> str | None:
    """Transform two rows of three blocks, with factors before it and in place after it."""
    op, block = hadamard, 32
    x, out = random_numbers().standard_normal((2, 2, 3 * block)).astype(np.float32)
    factors = random_numbers().standard_normal(3 * block).astype(np.float32)
    bits = np.arange(block)[:, None] & np.arange(block)
    matrix = (-1.0) ** np.bitwise_count(bits)
    values = {
        op.X: at(x), op.STRIDE: x.strides[0], op.OUT: at(out), op.OUT_STRIDE: out.strides[0],
        op.FACTORS: at(factors), op.K: 3 * block, op.BLOCK: block,
    }  # fmt: skip
    run_kernel(kernel, level, tag, 2, values)
    blocks = (x * factors.astype(np.float64)).reshape(2, 3, block)
    error = differs(out, (blocks @ matrix).reshape(2, -1), 1e-4)
    if error:
        return f"with factors before it, {error}"
    expected = (x.astype(np.float64).reshape(2, 3, block) @ matrix).reshape(2, -1) * factors
    run_kernel(kernel, level, tag, 2, values | {op.OUT: at(x), op.AFTER: 1})
    return differs(x, expected, 1e-4)


def check_add_squares(kernel: Kernel, level: str, tag: str) -> str | None:
    """Add the squares of three rows to ones."""
    op, x, sums = squares, random_numbers().standard_normal((3, 37)).astype(np.float32), np.ones(38)
    run_kernel(
        kernel, level, tag, 3, {op.X: at(x), op.X_STRIDE: x.strides[0], op.SUMS: at(sums), op.K: 37}
    )
    expected = np.append(1 + (x.astype(np.float64) ** 2).sum(axis=0), 4)
    return differs(sums, expected, 1e-14 * expected)


CHECKS = {
    "norm": Check(norm.norm, norm.NORMS, check_norm),
    "gated": Check(activation.gated, activation.ACTIVATIONS, check_gated),
    "gated_add": Check(gated_add.gated_add, NO_TAG, check_gated_add),
    "head_gate": Check(head_gate.head_gate, head_gate.ACTIVATIONS, check_head_gate),
    "scale": Check(scale.scale, NO_TAG, check_scale),
    "softcap": Check(softcap.softcap, NO_TAG, check_softcap),
    "clamp": Check(clamp.clamp, NO_TAG, check_clamp),
    "xielu": Check(xielu.xielu, NO_TAG, check_xielu),
    "hadamard": Check(hadamard.hadamard, NO_TAG, check_hadamard),
    "copy": Check(copy.copy, NO_TAG, check_copy),
    "add_squares": Check(squares.add_squares, NO_TAG, check_add_squares),
}
