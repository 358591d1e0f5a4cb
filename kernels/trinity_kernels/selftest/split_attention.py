"""Checks of attention over split keys and values: a last block that is not full, odd heads."""

from __future__ import annotations

import numpy as np

from trinity_kernels._jit import Kernel
from trinity_kernels.ops import split_attention as op
from trinity_kernels.selftest.checks import NO_TAG, Check
from trinity_kernels.selftest.comparing import differs, first_error
from trinity_kernels.selftest.packed_attention import SCALE, attended


def _case(pack: Kernel, attend: Kernel, level: str, positions: int, dim: int) -> str | None:
    """Compare the results of both kernels with the formula."""
    out, exact = attended(op, pack, attend, level, positions, dim)
    scores = np.einsum("ihd,jhd->hij", exact[0], exact[1]) * SCALE
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
