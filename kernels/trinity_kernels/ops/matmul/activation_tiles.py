"""Activations as AMX tiles, for products of several tokens (tiles.py).

A tile of activations has 16 rows of 64 bytes; a row has 4 bytes of each of 16 tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import tiles
from trinity_kernels._jit import Kernel, inline, kernel_with
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_i32, get_i64, slots_of
from trinity_kernels.ops.matmul.activations import bf16_tiles_at, q8_groups
from trinity_kernels.ops.matmul.operands import (
    CODES,
    CODES_STRIDE,
    FLOATS,
    INDEX,
    MANY,
    PACK_FROM,
    SCRATCH,
    SCRATCH_STRIDE,
    TILE_ROWS,
    TILES,
    X_STRIDE,
    K,
    X,
)
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive


@inline
def _row(record: int, token: int) -> Any:
    """The address of a token's float32: row ``token`` of X, or the row in INDEX."""
    index = get_i64(record + 8 * INDEX)
    if index != 0:
        token = int(get_i32(index + 4 * token))
    return get_i64(record + 8 * X) + token * get_i64(record + 8 * X_STRIDE)


@inline
def _transpose(
    source: int, stride: int, columns: int, tokens: int, to: int, scratch: int, first: int,
    step: int,
) -> None:  # fmt: skip
    """Transpose columns of 64 bytes of up to 16 tokens to a tile each."""
    for column in range(first, columns, positive(step)):
        at = source + 64 * column
        if tokens >= 16:
            tiles.transpose_16x16(at, to + 1024 * column, stride)
        else:
            for t in range(16):
                line = simd.splat_i32x16(0)
                if t < tokens:
                    line = simd.load_i32x16(at + t * stride)
                simd.store_i32x16(scratch + 64 * t, line)
            tiles.transpose_16x16(scratch, to + 1024 * column, 64)


@kernel_with("amx")
def tile_activations(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Write the tiles of the ternary form: words of 4 codes, 16 tokens side by side.

    Slots: X, X_STRIDE and K as in a product, TILES, SCRATCH. Missing tokens of the last tiles are
    zeros.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    if tokens < PACK_FROM and get_i64(record + 8 * MANY) == 0:
        return
    k, x, stride = slots_of(record, (K, X, X_STRIDE))
    chunks = (k + 255) // 256 * 4
    groups = (tokens + 31) // 32 * 2
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    for group in range(groups):
        to = get_i64(record + 8 * TILES) + group * chunks * 1024
        left = tokens - 16 * group
        _transpose(x + 16 * group * stride, stride, chunks, left, to, scratch, thread, threads)


@kernel_with("amx")
def tile_q8(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Write the tiles of up to TILE_ROWS tokens of the q8 form; of more, or with MANY, of bfloat16.

    Slots: X (float32), X_STRIDE and K as in a product, TILES, SCRATCH; CODES and CODES_STRIDE are
    the q8 form. Each of its 64 bytes becomes 16 words of 16 tokens: two tiles of codes, or the
    scales of 16 blocks, or their scaled sums. A bfloat16 tile has pairs of elements. If FLOATS is
    not 0, a weight needs bfloat16 tiles of few tokens, which follow. INDEX is 0 or int32: the rows
    of X to use.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    if tokens < PACK_FROM and get_i64(record + 8 * MANY) == 0:
        return
    k = get_i64(record + 8 * K)
    chunks = (k + 31) // 32
    groups = (tokens + 31) // 32 * 2
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    start = get_i64(record + 8 * TILES)
    if tokens <= TILE_ROWS and get_i64(record + 8 * MANY) == 0:
        codes = get_i64(record + 8 * CODES)
        stride = get_i64(record + 8 * CODES_STRIDE)
        _transpose(codes, stride, q8_groups(k) // 64, tokens, start, scratch, thread, threads)
        if get_i64(record + 8 * FLOATS) == 0:
            return
        groups = 1
        start += bf16_tiles_at(k, tokens)
    zeros = simd.splat_f32x16(np.float32(0))
    for group in range(groups):
        for chunk in range(thread, chunks, positive(threads)):
            for t in range(16):
                row = scratch + 64 * t
                if group * 16 + t < tokens:
                    source = _row(record, group * 16 + t) + 128 * chunk
                    low = simd.load_f32x16(source)
                    tiles.store_bf16x32(row, low, simd.load_f32x16(source + 64))
                else:
                    tiles.store_bf16x32(row, zeros, zeros)
            tiles.transpose_16x16(scratch, start + (group * chunks + chunk) * 1024, 64)


@kernel_with("amx")
def tile_split(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Write bfloat16 tiles, each followed by a tile of the rests: value - bfloat16(value).

    Slots: X (float32), X_STRIDE and K as in a product, TILES, SCRATCH, INDEX as in tile_q8.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    if tokens < PACK_FROM and get_i64(record + 8 * MANY) == 0:
        return
    k = get_i64(record + 8 * K)
    chunks = (k + 31) // 32
    groups = (tokens + 31) // 32 * 2
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    zeros = simd.splat_f32x16(np.float32(0))
    for group in range(groups):
        for chunk in range(thread, chunks, positive(threads)):
            for t in range(16):
                row = scratch + 64 * t
                low = zeros
                high = zeros
                if group * 16 + t < tokens:
                    source = _row(record, group * 16 + t) + 128 * chunk
                    left = k - 32 * chunk
                    if left >= 16:
                        low = simd.load_f32x16(source)
                    else:
                        low = simd.load_tail_f32(source, left)
                    if left >= 32:
                        high = simd.load_f32x16(source + 64)
                    elif left > 16:
                        high = simd.load_tail_f32(source + 64, left - 16)
                tiles.store_bf16x32(row, low, high)
                tiles.store_bf16x32(row + 1024, tiles.bf16_rest(low), tiles.bf16_rest(high))
            to = get_i64(record + 8 * TILES) + (group * chunks + chunk) * 2048
            tiles.transpose_16x16(scratch, to, 64)
            tiles.transpose_16x16(scratch + 1024, to + 1024, 64)


def tiles_of(form: str) -> Kernel:
    """The kernel that writes the tiles of a form."""
    kernels = {"ternary": tile_activations, "q8": tile_q8, "q19": tile_split, "f32": tile_split}
    return kernels[form]
