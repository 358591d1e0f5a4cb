"""Checks of attention over split keys and values: a last block that is not full, odd heads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels._jit import Kernel
from trinity_kernels.ops import split_attention as op
from trinity_kernels.record import float_bits
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import (
    aligned,
    at,
    differs,
    first_error,
    random_numbers,
    run_kernel,
)

Array = NDArray[Any]
_HEADS, _SCALE = 2, 0.75


def _case(pack: Kernel, attend: Kernel, level: str, positions: int, dim: int) -> str | None:
    """Compare the results of both kernels with the formula."""
    values = random_numbers().standard_normal((3, positions, _HEADS, dim)).astype(np.float32)
    q, k, v = np.ascontiguousarray(values)
    out = np.full_like(q, np.nan)
    packed = np.zeros(_HEADS * op.head_bytes(positions, dim) + 64, np.uint8)
    scratch = np.zeros(op.scratch_bytes(positions, dim) + 64, np.uint8)
    slots = {
        op.Q: at(q), op.K: at(k), op.V: at(v), op.STRIDE: 4 * _HEADS * dim, op.OUT: at(out),
        op.OUT_STRIDE: 4 * _HEADS * dim, op.PACKED: aligned(packed), op.HEADS: _HEADS,
        op.HEAD_DIM: dim, op.SCALE: float_bits(_SCALE), op.SCRATCH: aligned(scratch),
        op.SCRATCH_STRIDE: 0,
    }  # fmt: skip
    run_kernel(pack, level, "none", positions, slots)
    run_kernel(attend, level, "none", positions, slots)
    exact = values.astype(np.float64)
    scores = np.einsum("ihd,jhd->hij", exact[0], exact[1]) * _SCALE
    p = np.exp(scores - scores.max(2, keepdims=True))
    expected = np.einsum("hij,jhd->ihd", p / p.sum(2, keepdims=True), exact[2])
    return differs(out, expected, 2e-4)


def _check(pack: Kernel, attend: Kernel, level: str) -> str | None:
    return first_error(
        _case(pack, attend, level, *case) for case in ((300, 72), (33, 64), (3, 9), (256, 31))
    )


def check_pack_split(kernel: Kernel, level: str, tag: str) -> str | None:
    """Attend over what the kernel packed."""
    return _check(kernel, op.split_attention, level)


def check_split_attention(kernel: Kernel, level: str, tag: str) -> str | None:
    """Attend over what pack_split packed."""
    return _check(op.pack_split, kernel, level)


CHECKS = {
    "pack_split": Check(op.pack_split, NO_TAG, check_pack_split),
    "split_attention": Check(op.split_attention, NO_TAG, check_split_attention),
}
