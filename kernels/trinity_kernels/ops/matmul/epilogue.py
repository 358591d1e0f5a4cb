"""The end of every product: out = scale * y + bias; with ADD it is added to out.

Numerics: each step is rounded separately, in this order, for scalars and vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, set_f32


@inline
def store(y: Any, scale: Any, bias: int, add: int, row: int, to: int) -> None:
    """Write the result of row ``row`` of the weights to the float32 at ``to``."""
    y = np.float32(y * scale)
    if bias != 0:
        y = np.float32(y + get_f32(bias + 4 * row))
    if add != 0:
        y = np.float32(get_f32(to) + y)
    set_f32(to, y)


@inline
def store_16(y: Any, scale: Any, bias: int, add: int, row: int, to: int) -> None:
    """Write the results of 16 rows of the weights from ``row`` on; ``scale`` has 16 lanes."""
    y = y * scale
    if bias != 0:
        y = y + simd.load_f32x16(bias + 4 * row)
    if add != 0:
        y = simd.load_f32x16(to) + y
    simd.store_f32x16(to, y)
