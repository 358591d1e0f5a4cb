"""Sums in 16 float32 lanes, which every level adds up in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir
from trinity_kernels.instructions import instructions


@instructions("float32*", python=lambda: np.zeros(16, np.float32))
def zero_lanes(builder: Any) -> Any:
    """The address of 16 float32 zeros in the stack frame of the calling function."""
    kind = ir.ArrayType(ir.FloatType(), 16)
    lanes = cgutils.alloca_once(builder, kind)
    builder.store(ir.Constant(kind, None), lanes)
    return builder.bitcast(lanes, ir.FloatType().as_pointer())


@inline
def tree_sum(lanes: Any) -> Any:
    """The sum of 16 lanes by the fixed tree of simd.sum_f32x16; overwrites the lanes."""
    half = 8
    while half > 0:
        for i in range(half):
            lanes[i] = np.float32(lanes[i] + lanes[i + half])
        half //= 2
    return lanes[0]
