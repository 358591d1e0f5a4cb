"""The rows of output from tiles of sums, [16 rows][16 tokens]."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import tiles
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_f32, get_f64, get_i64, slots_of
from trinity_kernels.ops.matmul import epilogue
from trinity_kernels.ops.matmul.activations import ternary_tail
from trinity_kernels.ops.matmul.operands import (
    ADD,
    BIAS,
    OUT,
    OUT_STRIDE,
    SCALE,
    X_STRIDE,
    K,
    X,
)
from trinity_kernels.ops.matmul.readers import is_ternary
from trinity_kernels.ops.matmul.tile_layout import has_scaled_blocks
from trinity_kernels.tags import chosen


@chosen
def _values(qt: Any, words: Any, tail: Any) -> Any:
    if not is_ternary(qt):
        return lambda qt, words, tail: simd.load_f32x16(words)

    def scaled(qt: Any, words: int, tail: int) -> Any:
        return simd.load_f32x16(words) / simd.splat_f32x16(get_f32(tail))

    def exact(qt: Any, words: int, tail: int) -> Any:
        return simd.to_f32x16(simd.load_i32x16(words)) / simd.splat_f32x16(get_f32(tail))

    return scaled if has_scaled_blocks(qt) else exact


@inline
def store_sums(
    qt: Any, record: int, sums: int, transposed: int, row: int, token: int, tokens: int
) -> None:
    """Write the results of one tile of sums [16 rows][16 tokens] to out."""
    scale = simd.splat_f32x16(np.float32(get_f64(record + 8 * SCALE)))
    bias, add, x_stride = slots_of(record, (BIAS, ADD, X_STRIDE))
    tail = get_i64(record + 8 * X) + ternary_tail(get_i64(record + 8 * K))
    tiles.transpose_16x16(sums, transposed, 64)
    for t in range(token, min(token + 16, tokens)):
        to = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + 4 * row
        y = _values(qt, transposed + 64 * (t - token), tail + t * x_stride)
        epilogue.store_16(y, scale, bias, add, row, to)


@inline
def sums_bytes(qt: Any) -> int:
    """Bytes of four tiles of sums, or of four times as many if blocks have a scale."""
    return 16384 if has_scaled_blocks(qt) else 4096
