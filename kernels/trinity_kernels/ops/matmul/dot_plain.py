"""Dot products of plain numbers and float32 activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.deferred import simd
from trinity_kernels.lanes import tree_sum, zero_lanes
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import elements, get, load, load_tail, nbytes
from trinity_kernels.tags import per_level


def _vector(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    acc = simd.splat_f32x16(np.float32(0))
    size = 32 // elements(qt) * nbytes(qt)
    for i in range(k // 32):
        ahead = w + size * i + AHEAD
        simd.prefetch(ahead)
        acc = simd.fma_f32x16(load(qt, w, 2 * i), simd.load_f32x16(x + 128 * i), acc)
        if size > 64:
            simd.prefetch(ahead + 64)
        acc = simd.fma_f32x16(load(qt, w, 2 * i + 1), simd.load_f32x16(x + 128 * i + 64), acc)
    n = k // 32 * 2
    if k - 16 * n >= 16:
        acc = simd.fma_f32x16(load(qt, w, n), simd.load_f32x16(x + 64 * n), acc)
        n += 1
    left = k - 16 * n
    if left > 0:
        tail = load_tail(qt, w, n, left)
        acc = simd.fma_f32x16(tail, simd.load_tail_f32(x + 64 * n, left), acc)
    return simd.sum_f32x16(acc)


@per_level(_vector)
def dot_plain(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    lanes = zero_lanes()
    for i in range(k):
        lanes[i % 16] = memory.fma_f32(get(qt, w, i), memory.get_f32(x + 4 * i), lanes[i % 16])
    return tree_sum(lanes)
