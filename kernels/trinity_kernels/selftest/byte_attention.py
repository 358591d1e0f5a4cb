"""Checks of attention over int8 keys and values: several blocks, heads that fill no vector."""

from __future__ import annotations

import numpy as np

from trinity_kernels._jit import Kernel
from trinity_kernels.ops import byte_attention as op
from trinity_kernels.ops.byte_softmax import BLOCK
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import Array, differs
from trinity_kernels.selftest.packed_attention import SCALE, attended

_POSITIONS = 71


def _coded(values: Array, axis: int) -> Array:
    """Values rounded to int8 with one scale along ``axis``."""
    scales = np.abs(values).max(axis, keepdims=True) / 127
    coded: Array = np.rint(values / scales) * scales
    return coded


def _expected(q: Array, k: Array, v: Array) -> Array:
    """The formula: q, k, v and the result are (positions, heads, dim) of float64."""
    q, k, v = _coded(q, 2), _coded(k - k.mean(0), 2), _coded(v, 0)
    scores = np.einsum("ihd,jhd->hij", q, k) * SCALE
    p = np.exp(scores - scores.max(2, keepdims=True))
    rounded = np.empty_like(p)
    for first in range(0, _POSITIONS, BLOCK):
        block = p[:, :, first : first + BLOCK]
        parts = block.max(2, keepdims=True) / 255
        rounded[:, :, first : first + BLOCK] = np.rint(block / parts) * parts
    found: Array = np.einsum("hij,jhd->ihd", rounded / p.sum(2, keepdims=True), v)
    return found


def check_pack_bytes(kernel: Kernel, level: str, tag: str) -> str | None:
    """Attend over what the kernel packed."""
    return _check(kernel, op.byte_attention, level)


def check_byte_attention(kernel: Kernel, level: str, tag: str) -> str | None:
    """Attend over what pack_bytes packed."""
    return _check(op.pack_bytes, kernel, level)


def _check(pack: Kernel, attend: Kernel, level: str) -> str | None:
    for dim in (64, 18):
        out, exact = attended(op, pack, attend, level, _POSITIONS, dim)
        expected = _expected(*exact)
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
