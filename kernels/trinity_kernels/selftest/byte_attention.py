"""Checks of attention over int8 keys and values: several blocks, heads that fill no vector."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels._jit import Kernel
from trinity_kernels.ops import byte_attention as op
from trinity_kernels.ops.byte_softmax import BLOCK
from trinity_kernels.record import float_bits
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import at, differs, random_numbers, run_kernel

Array = NDArray[Any]
_POSITIONS, _HEADS, _SCALE = 71, 2, 0.75


def _coded(values: Array, axis: int) -> Array:
    """Values rounded to int8 with one scale along ``axis``."""
    scales = np.abs(values).max(axis, keepdims=True) / 127
    coded: Array = np.rint(values / scales) * scales
    return coded


def _expected(q: Array, k: Array, v: Array) -> Array:
    """The formula: q, k, v and the result are (positions, heads, dim) of float64."""
    q, k, v = _coded(q, 2), _coded(k - k.mean(0), 2), _coded(v, 0)
    scores = np.einsum("ihd,jhd->hij", q, k) * _SCALE
    p = np.exp(scores - scores.max(2, keepdims=True))
    rounded = np.empty_like(p)
    for first in range(0, _POSITIONS, BLOCK):
        block = p[:, :, first : first + BLOCK]
        parts = block.max(2, keepdims=True) / 255
        rounded[:, :, first : first + BLOCK] = np.rint(block / parts) * parts
    found: Array = np.einsum("hij,jhd->ihd", rounded / p.sum(2, keepdims=True), v)
    return found


def _case(pack: Kernel, attend: Kernel, level: str, dim: int) -> tuple[Array, Array]:
    """The results of both kernels and of the formula."""
    shape = (3, _POSITIONS, _HEADS, dim)
    values = random_numbers().standard_normal(shape).astype(np.float32)
    q, k, v = np.ascontiguousarray(values)
    out = np.full_like(q, np.nan)
    packed = np.zeros(_HEADS * op.head_bytes(_POSITIONS, dim), np.uint8)
    scratch = np.zeros(op.scratch_bytes(_POSITIONS, dim), np.uint8)
    slots = {
        op.Q: at(q), op.K: at(k), op.V: at(v), op.STRIDE: 4 * _HEADS * dim, op.OUT: at(out),
        op.OUT_STRIDE: 4 * _HEADS * dim, op.PACKED: at(packed), op.HEADS: _HEADS,
        op.HEAD_DIM: dim, op.SCALE: float_bits(_SCALE), op.SCRATCH: at(scratch),
        op.SCRATCH_STRIDE: 0,
    }  # fmt: skip
    run_kernel(pack, level, "none", _POSITIONS, slots)
    run_kernel(attend, level, "none", _POSITIONS, slots)
    return out, _expected(*values.astype(np.float64))


def check_pack_bytes(kernel: Kernel, level: str, tag: str) -> str | None:
    """Attend over what the kernel packed."""
    return _check(kernel, op.byte_attention, level)


def check_byte_attention(kernel: Kernel, level: str, tag: str) -> str | None:
    """Attend over what pack_bytes packed."""
    return _check(op.pack_bytes, kernel, level)


def _check(pack: Kernel, attend: Kernel, level: str) -> str | None:
    for dim in (64, 18):
        out, expected = _case(pack, attend, level, dim)
        # One code rounded the other way changes a value by 1/127 of the largest of its row.
        error = differs(out, expected, 2e-2)
        if error:
            return error
        if np.abs(out - expected).mean() > 1e-4:
            return f"the mean error is {np.abs(out - expected).mean():.2g} for heads of {dim}"
    return None


CHECKS = {
    "pack_bytes": Check(op.pack_bytes, NO_TAG, check_pack_bytes),
    "byte_attention": Check(op.byte_attention, NO_TAG, check_byte_attention),
}
