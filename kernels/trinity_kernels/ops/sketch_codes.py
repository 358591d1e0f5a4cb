"""Makes a sketch (sketch.py) of rows of float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline, kernel
from trinity_kernels.deferred import simd
from trinity_kernels.memory import (
    get_f16,
    get_f32,
    get_i32,
    get_i64,
    set_f16,
    set_i8,
    set_i32,
)
from trinity_kernels.ops.matmul.float_block import sums_on_stack
from trinity_kernels.ops.sketch import BLOCK, PANEL
from trinity_kernels.scalars import positive
from trinity_kernels.tags import per_level

X, X_STRIDE, N, K, OUT, OUT_STRIDE, SHIFTS, BAD = range(3, 11)


@kernel
def sketch_codes(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Write the panels of N float32 rows at X, a multiple of 16, to OUT.

    SHIFTS has u + 8 for each column. The byte at BAD becomes 1 if a scale is not finite.
    """
    n, k = get_i64(record + 8 * N), get_i64(record + 8 * K)
    shifts, blocks = get_i64(record + 8 * SHIFTS), k // BLOCK
    size = get_i64(record + 8 * OUT_STRIDE)
    for row in range(thread, n, positive(threads)):
        x = get_i64(record + 8 * X) + row * get_i64(record + 8 * X_STRIDE)
        panel = get_i64(record + 8 * OUT) + row // PANEL * size
        lane = row % PANEL
        for b in range(blocks):
            at = x + 4 * BLOCK * b
            wanted = np.float32(_largest(isa, at) * np.float32(1 / 7))
            scale_at = panel + blocks * (PANEL * BLOCK // 2) + 2 * PANEL * b + 2 * lane
            set_f16(scale_at, wanted)
            if get_f16(scale_at) < np.float32(wanted * np.float32(1 + 1e-6)):
                more = np.float32(wanted * np.float32(1 + 2.0**-9))
                set_f16(scale_at, max(more, np.float32(wanted + np.float32(2.0**-24))))
            scale = get_f16(scale_at)
            if not scale < np.float32(65505):
                set_i8(get_i64(record + 8 * BAD), np.int8(1))
            inverse = np.float32(0)
            if scale > np.float32(0):
                inverse = np.float32(np.float32(1) / scale)
            to = panel + PANEL * BLOCK // 2 * b + 4 * lane
            _codes(isa, at, inverse, shifts + 4 * BLOCK * b, to)


def _largest_vector(isa: Any, x: int) -> Any:
    zero = simd.splat_f32x16(np.float32(0))
    largest, poison = zero, zero
    for i in range(4):
        v = simd.load_f32x16(x + 64 * i)
        largest = simd.max_f32x16(largest, simd.abs_f32x16(v))
        poison = poison + v * zero
    return np.float32(simd.max_lane_f32x16(largest) + simd.sum_f32x16(poison))


@per_level(_largest_vector)
def _largest(isa: Any, x: int) -> Any:
    """The largest magnitude of a block; NaN if a number is not finite."""
    largest, poison = np.float32(0), np.float32(0)
    for j in range(BLOCK):
        v = get_f32(x + 4 * j)
        largest = max(largest, np.float32(abs(v)))
        poison = np.float32(poison + np.float32(v * np.float32(0)))
    return np.float32(largest + poison)


@inline
def _codes_of_16(x: int, inverse: Any, shifts: int) -> Any:
    """16 codes in lanes of 32 bits."""
    shifted = simd.load_f32x16(x) * inverse + simd.load_f32x16(shifts)
    low, high = simd.splat_f32x16(np.float32(0)), simd.splat_f32x16(np.float32(15))
    whole = simd.floor_f32x16(simd.max_f32x16(low, simd.min_f32x16(high, shifted)))
    return simd.round_i32x16(whole)


def _codes_vector(isa: Any, x: int, inverse: Any, shifts: int, to: int) -> None:
    four, factor = simd.splat_i32x16(4), simd.splat_f32x16(inverse)
    words = sums_on_stack()
    for i in range(2):
        low = _codes_of_16(x + 64 * i, factor, shifts + 64 * i)
        high = _codes_of_16(x + 64 * i + 128, factor, shifts + 64 * i + 128)
        simd.store_i8x16(words, simd.narrow_i8x16(low + (high << four)))
        for word in range(4):
            set_i32(to + 64 * (4 * i + word), get_i32(words + 4 * word))


@per_level(_codes_vector)
def _codes(isa: Any, x: int, inverse: Any, shifts: int, to: int) -> None:
    """Write the codes of a row's block."""
    for j in range(BLOCK // 2):
        low = _code(x + 4 * j, inverse, shifts + 4 * j)
        high = _code(x + 4 * j + 128, inverse, shifts + 4 * j + 128)
        set_i8(to + j // 4 * 64 + j % 4, np.int8(low + 16 * high))


@inline
def _code(weight: int, inverse: Any, shift: int) -> int:
    """The code of one weight."""
    shifted = np.float32(np.float32(get_f32(weight) * inverse) + get_f32(shift))
    return int(max(np.float32(0), min(np.float32(15), shifted)))
