"""The matrix product on AMX tiles: for prompts and batches, 16 rows by 16 tokens at a time.

The record is that of ops/matmul.py with three slots more: TILES, the activations as tiles
(``tile_activations``), and SCRATCH, per thread room for two panels of 16 unpacked rows and four
tiles of sums. A step of few tokens takes the rows one by one, as ops/matmul.py does.
Numerics: I2_S sums are exact, and the rest is done as in quants.dot.ternary_result: every result
has the same bits as the vector path's. Other types multiply bfloat16 weights (scale * code,
rounded) by bfloat16 activations and sum in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import choose, inline, tile_kernel
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_f32, get_f64, get_i32, get_i64, set_f32, set_i32
from trinity_kernels.ops.matmul import (
    ADD,
    BIAS,
    OUT,
    OUT_STRIDE,
    SCALE,
    W_STRIDE,
    X_STRIDE,
    K,
    N,
    W,
    X,
)
from trinity_kernels.quants.dot import dot_row
from trinity_kernels.quants.unpack import unpack_tile_row
from trinity_kernels.record import ROWS

TILES, SCRATCH, SCRATCH_STRIDE = 14, 15, 16
# Below this many tokens a product of rows and vectors is as fast, and its reads run ahead better.
FEW = 4

if not jit_disabled():
    from trinity_kernels import simd, tiles


def tile_bytes(form: str, k: int, tokens: int) -> int:
    """Bytes of ``tokens`` activations as tiles."""
    groups = -(-tokens // 32) * 2
    return groups * 16 * padded_bytes(form, k)


def padded_bytes(form: str, k: int) -> int:
    """Bytes of one unpacked row: int8 padded to 256 codes, or bfloat16 padded to 32."""
    return -(-k // 256) * 256 if form == "ternary" else -(-k // 32) * 64


def scratch_bytes(form: str, k: int) -> int:
    """Bytes that a thread needs: two panels, the sums, their transpose, a tile configuration."""
    return 32 * padded_bytes(form, k) + 4096 + 1024 + 64


@tile_kernel
def tile_activations(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Row-major int8 activations to tiles: words of 4 bytes of k, 16 tokens side by side.

    Slots: X, X_STRIDE, K as in matmul, TILES. Missing tokens of the last tiles are zeros.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    if tokens < 4:
        return
    k = get_i64(record + 8 * K)
    x = get_i64(record + 8 * X)
    stride = get_i64(record + 8 * X_STRIDE)
    chunks = (k + 255) // 256 * 4
    groups = (tokens + 31) // 32 * 2
    for group in range(groups):
        for chunk in range(thread, chunks, threads):
            to = get_i64(record + 8 * TILES) + (group * chunks + chunk) * 1024
            source = x + group * 16 * stride + 64 * chunk
            if group * 16 + 16 <= tokens:
                tiles.transpose_16x16(source, to, stride)
            else:
                for t in range(16):
                    for word in range(16):
                        value = np.int32(0)
                        if group * 16 + t < tokens:
                            value = get_i32(source + t * stride + 4 * word)
                        set_i32(to + 64 * word + 4 * t, value)


@tile_kernel
def tile_bf16(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Float32 activations to bfloat16 tiles: pairs of k, 16 tokens side by side.

    Slots: X, X_STRIDE, K as in matmul (X float32), TILES, SCRATCH.
    """
    tokens = get_i64(get_i64(record + 8 * ROWS))
    if tokens < 4:
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
                if group * 16 + t < tokens:
                    source = get_i64(record + 8 * X) + 128 * chunk
                    source += (group * 16 + t) * get_i64(record + 8 * X_STRIDE)
                    low = simd.load_f32x16(source)
                    tiles.store_bf16x32(row, low, simd.load_f32x16(source + 64))
                else:
                    tiles.store_bf16x32(row, zeros, zeros)
            to = get_i64(record + 8 * TILES) + (group * chunks + chunk) * 1024
            tiles.transpose_16x16(scratch, to, 64)


def _is_ternary(qt: Any) -> bool:
    return bool(qt.value == "I2_S")


@choose(_is_ternary)
def _is_ternary_of(qt: Any) -> Any:
    return (lambda qt: True) if qt.value == "I2_S" else (lambda qt: False)


def _multiply(qt: Any, w0: int, w1: int, x0: int, x1: int) -> None: ...


@choose(_multiply)
def _multiply_of(qt: Any, w0: Any, w1: Any, x0: Any, x1: Any) -> Any:
    if qt.value == "I2_S":
        return lambda qt, w0, w1, x0, x1: tiles.tiles_product_i8(w0, w1, x0, x1)
    return lambda qt, w0, w1, x0, x1: tiles.tiles_product_bf16(w0, w1, x0, x1)


def _values(qt: Any, words: int, tail: int) -> Any: ...


@choose(_values)
def _values_of(qt: Any, words: Any, tail: Any) -> Any:
    if qt.value != "I2_S":
        return lambda qt, words, tail: simd.load_f32x16(words)

    def exact(qt: Any, words: int, tail: int) -> Any:
        total = simd.splat_i32x16(int(get_i32(tail + 4)))
        y = simd.to_f32x16(simd.load_i32x16(words) - total)
        return y / simd.splat_f32x16(get_f32(tail))

    return exact


@inline
def _one_by_one(isa: Any, qt: Any, record: int, first: int, last: int, tokens: int) -> None:
    """Rows first to last by dot products, for few tokens and for rows that fill no panel."""
    x = get_i64(record + 8 * X)
    x_stride = get_i64(record + 8 * X_STRIDE)
    w = get_i64(record + 8 * W)
    w_stride = get_i64(record + 8 * W_STRIDE)
    k = get_i64(record + 8 * K)
    scale = np.float32(get_f64(record + 8 * SCALE))
    bias = get_i64(record + 8 * BIAS)
    add = get_i64(record + 8 * ADD)
    out = get_i64(record + 8 * OUT)
    out_stride = get_i64(record + 8 * OUT_STRIDE)
    for row in range(first, last):
        for token in range(tokens):
            to = out + token * out_stride + 4 * row
            y = dot_row(isa, qt, w + row * w_stride, x + token * x_stride, k)
            y = np.float32(y * scale)
            if bias != 0:
                y = np.float32(y + get_f32(bias + 4 * row))
            if add != 0:
                y = np.float32(get_f32(to) + y)
            set_f32(to, y)


@inline
def _write_sums(
    qt: Any, record: int, sums: int, turned: int, row: int, token: int, tokens: int
) -> None:
    """One tile of sums [16 rows][16 tokens] to out."""
    scale = simd.splat_f32x16(np.float32(get_f64(record + 8 * SCALE)))
    bias = get_i64(record + 8 * BIAS)
    add = get_i64(record + 8 * ADD)
    x_stride = get_i64(record + 8 * X_STRIDE)
    tail = get_i64(record + 8 * X) + (get_i64(record + 8 * K) + 255) // 256 * 320
    tiles.transpose_16x16(sums, turned, 64)
    for t in range(token, min(token + 16, tokens)):
        to = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + 4 * row
        y = _values(qt, turned + 64 * (t - token), tail + t * x_stride) * scale
        if bias != 0:
            y = y + simd.load_f32x16(bias + 4 * row)
        if add != 0:
            y = simd.load_f32x16(to) + y
        simd.store_f32x16(to, y)


@tile_kernel
def matmul_tiles(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Panels of 32 rows: unpacked once, multiplied with all tokens; see the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    n = get_i64(record + 8 * N)
    k = get_i64(record + 8 * K)
    panels = n // 16
    first = panels * thread // threads
    last = panels * (thread + 1) // threads
    if tokens < 4:
        stop = 16 * last
        if thread == threads - 1:
            stop = n
        _one_by_one(isa, qt, record, 16 * first, stop, tokens)
        return
    w = get_i64(record + 8 * W)
    w_stride = get_i64(record + 8 * W_STRIDE)
    chunks = (k + 31) // 32
    if _is_ternary(qt):
        chunks = (k + 255) // 256 * 4
    panel0 = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    panel1 = panel0 + 1024 * chunks
    sums = panel1 + 1024 * chunks
    turned = sums + 4096
    x_tiles = get_i64(record + 8 * TILES)
    groups = (tokens + 15) // 16
    tiles.tiles_begin(turned + 1024)
    for panel in range(first, last, 2):
        both = panel + 1 < last
        for row in range(16):
            unpack_tile_row(isa, qt, w + (16 * panel + row) * w_stride, panel0 + 64 * row, k)
            if both:
                source = w + (16 * panel + 16 + row) * w_stride
                unpack_tile_row(isa, qt, source, panel1 + 64 * row, k)
        for group in range(0, groups, 2):
            x0 = x_tiles + group * 1024 * chunks
            x1 = x0 + 1024 * chunks
            tiles.tiles_zero()
            for c in range(0, 1024 * chunks, 1024):
                _multiply(qt, panel0 + c, panel1 + c, x0 + c, x1 + c)
            tiles.tiles_store(sums)
            row = 16 * panel
            token = 16 * group
            _write_sums(qt, record, sums, turned, row, token, tokens)
            _write_sums(qt, record, sums + 1024, turned, row, token + 16, tokens)
            if both:
                _write_sums(qt, record, sums + 2048, turned, row + 16, token, tokens)
                _write_sums(qt, record, sums + 3072, turned, row + 16, token + 16, tokens)
    tiles.tiles_end()
    if thread == threads - 1:
        _one_by_one(isa, qt, record, 16 * panels, n, tokens)
