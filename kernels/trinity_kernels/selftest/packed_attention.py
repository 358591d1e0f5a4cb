"""Attention of all positions, by a kernel that packs keys and values and one that attends."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels._jit import Kernel
from trinity_kernels.record import float_bits
from trinity_kernels.selftest.comparing import Array, aligned, at, random_numbers, run_kernel

HEADS, SCALE = 2, 0.75


def attended(
    op: ModuleType, pack: Kernel, attend: Kernel, level: str, positions: int, dim: int
) -> tuple[NDArray[np.float32], Array]:
    """What both kernels of the module ``op`` compute; and q, k and v in float64."""
    values = random_numbers().standard_normal((3, positions, HEADS, dim)).astype(np.float32)
    q, k, v = np.ascontiguousarray(values)
    out = np.full_like(q, np.nan)
    packed = np.zeros(HEADS * op.head_bytes(positions, dim) + 64, np.uint8)
    scratch = np.zeros(op.scratch_bytes(positions, dim) + 64, np.uint8)
    slots: dict[int, Any] = {
        op.Q: at(q), op.K: at(k), op.V: at(v), op.STRIDE: 4 * HEADS * dim, op.OUT: at(out),
        op.OUT_STRIDE: 4 * HEADS * dim, op.PACKED: aligned(packed), op.HEADS: HEADS,
        op.HEAD_DIM: dim, op.SCALE: float_bits(SCALE), op.SCRATCH: aligned(scratch),
        op.SCRATCH_STRIDE: 0,
    }  # fmt: skip
    run_kernel(pack, level, "none", positions, slots)
    run_kernel(attend, level, "none", positions, slots)
    return out, values.astype(np.float64)
