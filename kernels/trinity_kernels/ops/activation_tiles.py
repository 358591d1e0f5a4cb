"""Activations as AMX tiles, which many tokens' products take (ops/matmul_tiles.py).

A tile of activations has 16 rows of 64 bytes: each row 4 bytes of k of each of 16 tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import Kernel, inline, tile_kernel
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_i64
from trinity_kernels.ops.matmul import X_STRIDE, K, X
from trinity_kernels.record import ROWS

TILES, SCRATCH, SCRATCH_STRIDE, CODES, CODES_STRIDE, FLOATS = range(14, 20)
# Below this many tokens a product of rows and vectors is as fast, and its reads run ahead better.
FEW = 4
# Up to this many share one tile: most block types are then multiplied as integers.
GROUP = 16

if not jit_disabled():
    from trinity_kernels import simd, tiles


def tile_bytes(form: str, k: int, tokens: int) -> int:
    """Bytes of ``tokens`` activations as tiles."""
    groups = -(-tokens // 32) * 2
    found = groups * 16 * padded_bytes(form, k)
    both = 1024 * code_columns(k) + 16 * padded_bytes(form, k)
    return max(found, both) if form == "q8" else found


def padded_bytes(form: str, k: int) -> int:
    """Bytes of one unpacked row: int8 padded to 256 codes, or bfloat16 padded to 32, or two."""
    if form == "ternary":
        return -(-k // 256) * 256
    return -(-k // 32) * (128 if form == "f32" else 64)


def code_columns(k: int) -> int:
    """Columns of 64 bytes of the q8 form: its codes, scales and scaled sums."""
    return (k + 63) // 64 + (k + 511) // 512 * 2


@inline
def _turn(
    source: int, stride: int, columns: int, tokens: int, to: int, scratch: int, first: int,
    step: int,
) -> None:  # fmt: skip
    """Some columns of 64 bytes of 16 tokens, of which some may be missing, each to a tile."""
    for column in range(first, columns, step):
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


@tile_kernel
def tile_activations(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Row-major int8 activations to tiles: words of 4 bytes of k, 16 tokens side by side.

    Slots: X, X_STRIDE, K as in matmul, TILES, SCRATCH. Missing tokens of the last tiles are zeros.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    if tokens < FEW:
        return
    k = get_i64(record + 8 * K)
    x = get_i64(record + 8 * X)
    stride = get_i64(record + 8 * X_STRIDE)
    chunks = (k + 255) // 256 * 4
    groups = (tokens + 31) // 32 * 2
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    for group in range(groups):
        to = get_i64(record + 8 * TILES) + group * chunks * 1024
        left = tokens - 16 * group
        _turn(x + 16 * group * stride, stride, chunks, left, to, scratch, thread, threads)


@inline
def floats_at(k: int, tokens: int) -> int:
    """Bytes from the tiles of the q8 form's activations to those of bfloat16."""
    if tokens <= GROUP:
        return 1024 * ((k + 63) // 64 + (k + 511) // 512 * 2)
    return 0


@tile_kernel
def tile_q8(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """At most GROUP tokens: the q8 form, turned; more: float32 to bfloat16 tiles.

    Slots: X, X_STRIDE, K as in matmul (X float32), TILES, SCRATCH; CODES, CODES_STRIDE: the q8
    form. Turned, each 64 bytes of it are 16 words of 16 tokens side by side: two tiles of codes,
    or the scales of 16 blocks, or their scaled sums. A bfloat16 tile holds pairs of k.
    FLOATS: not 0 where some weight takes bfloat16 tiles, which then follow the turned form.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    if tokens < FEW:
        return
    k = get_i64(record + 8 * K)
    chunks = (k + 31) // 32
    groups = (tokens + 31) // 32 * 2
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    if tokens <= GROUP:
        codes = get_i64(record + 8 * CODES)
        stride = get_i64(record + 8 * CODES_STRIDE)
        to = get_i64(record + 8 * TILES)
        columns = (k + 63) // 64 + (k + 511) // 512 * 2
        _turn(codes, stride, columns, tokens, to, scratch, thread, threads)
        if get_i64(record + 8 * FLOATS) == 0:
            return
        groups = 1
    start = get_i64(record + 8 * TILES) + floats_at(k, tokens)
    zeros = simd.splat_f32x16(np.float32(0))
    for group in range(groups):
        for chunk in range(thread, chunks, threads):
            for t in range(16):
                row = scratch + 64 * t
                if group * 16 + t < tokens:
                    source = get_i64(record + 8 * X) + 128 * chunk
                    source += (group * 16 + t) * get_i64(record + 8 * X_STRIDE)
                    low = simd.load_f32x16(source)
                    tiles.store_bf16x32(row, low, simd.load_f32x16(source + 64))
                else:
                    tiles.store_bf16x32(row, zeros, zeros)
            tiles.transpose_16x16(scratch, start + (group * chunks + chunk) * 1024, 64)


@tile_kernel
def tile_split(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Float32 to bfloat16 tiles, each followed by that of what its bfloat16 leave.

    Slots: X, X_STRIDE, K as in matmul (X float32), TILES, SCRATCH.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    if tokens < FEW:
        return
    k = get_i64(record + 8 * K)
    chunks = (k + 31) // 32
    groups = (tokens + 31) // 32 * 2
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    zeros = simd.splat_f32x16(np.float32(0))
    for group in range(groups):
        for chunk in range(thread, chunks, threads):
            for t in range(16):
                row = scratch + 64 * t
                low = zeros
                high = zeros
                if group * 16 + t < tokens:
                    source = get_i64(record + 8 * X) + 128 * chunk
                    source += (group * 16 + t) * get_i64(record + 8 * X_STRIDE)
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
    """The kernel that brings activations of a form to tiles."""
    return {"ternary": tile_activations, "q8": tile_q8, "f32": tile_split}[form]
