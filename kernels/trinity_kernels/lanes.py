"""Sums of float32 in 16 lanes, which every level adds up in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import cgutils, ir
from trinity_kernels.instructions import instructions


@instructions("float32*", python=lambda: np.zeros(16, np.float32))
def zero_lanes(builder: Any) -> Any:
    """16 zeros in the frame of the function that calls this."""
    kind = ir.ArrayType(ir.FloatType(), 16)
    lanes = cgutils.alloca_once(builder, kind)
    builder.store(ir.Constant(kind, None), lanes)
    return builder.bitcast(lanes, ir.FloatType().as_pointer())


@inline
def tree_sum(lanes: Any) -> Any:
    """The fixed tree over 16 float32 lanes, as simd.sum_f32x16 does it; overwrites them."""
    half = 8
    while half > 0:
        for i in range(half):
            lanes[i] = np.float32(lanes[i] + lanes[i + half])
        half //= 2
    return lanes[0]
