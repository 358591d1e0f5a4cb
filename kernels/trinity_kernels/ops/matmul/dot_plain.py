"""Dot products of plain numbers: F32, F16 and BF16 by float32 activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.isa import jit_disabled
from trinity_kernels.lanes import tree_sum
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import get, nbytes
from trinity_kernels.tags import per_level

if not jit_disabled():
    from trinity_kernels import simd
    from trinity_kernels.ops.matmul.readers import load, load_tail


def _vector(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    acc = simd.splat_f32x16(np.float32(0))
    step = 16 * nbytes(qt)
    for i in range(k // 32):
        at = w + 2 * step * i
        simd.prefetch(at + AHEAD)
        acc = simd.fma_f32x16(load(qt, at), simd.load_f32x16(x + 128 * i), acc)
        if nbytes(qt) == 4:
            simd.prefetch(at + AHEAD + 64)
        acc = simd.fma_f32x16(load(qt, at + step), simd.load_f32x16(x + 128 * i + 64), acc)
    done = k // 32 * 32
    if k - done >= 16:
        acc = simd.fma_f32x16(load(qt, w + nbytes(qt) * done), simd.load_f32x16(x + 4 * done), acc)
        done += 16
    if done < k:
        tail = load_tail(qt, w + nbytes(qt) * done, k - done)
        acc = simd.fma_f32x16(tail, simd.load_tail_f32(x + 4 * done, k - done), acc)
    return simd.sum_f32x16(acc)


@per_level(_vector)
def dot_plain(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    lanes = np.zeros(16, np.float32)
    for i in range(k):
        weight = get(qt, w + nbytes(qt) * i)
        lanes[i % 16] = memory.fma_f32(weight, memory.get_f32(x + 4 * i), lanes[i % 16])
    return tree_sum(lanes)
