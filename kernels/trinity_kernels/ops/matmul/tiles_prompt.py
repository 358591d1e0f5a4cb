"""More than TILE_ROWS tokens on tiles: several panels, unpacked, times 32 tokens at a time."""

from __future__ import annotations

from typing import Any

from trinity_kernels import tiles
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_i64
from trinity_kernels.ops.matmul.operands import (
    OUT,
    OUT_STRIDE,
    SCRATCH,
    SCRATCH_STRIDE,
    TILES,
    W_STRIDE,
    K,
    W,
)
from trinity_kernels.ops.matmul.readers import is_ternary
from trinity_kernels.ops.matmul.ternary_blocks import (
    add_tile,
    begin_tiles,
    end_tiles,
    load_scales,
)
from trinity_kernels.ops.matmul.tile_layout import (
    PANELS,
    PANELS_BYTES,
    activation_tile_bytes,
    has_scaled_blocks,
    tile_parts,
    tile_width,
    weight_tile_bytes,
)
from trinity_kernels.ops.matmul.tile_sums import store_sums, sums_bytes
from trinity_kernels.ops.matmul.unpack import unpack_16_rows
from trinity_kernels.record import ROWS
from trinity_kernels.scalars import positive
from trinity_kernels.tags import chosen


@chosen
def _multiply(qt: Any, w0: Any, w1: Any, x0: Any, x1: Any) -> Any:
    product = tiles.wide_i8 if is_ternary(qt) else tiles.wide_bf16[tile_parts(qt.value)]
    return lambda qt, w0, w1, x0, x1: product(w0, w1, x0, x1)


@inline
def _prefetch_out(record: int, panel: int, token: int, end: int) -> None:
    """Prefetch the lines that two panels will write, which would be cache misses."""
    for t in range(token, end):
        to = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + 64 * panel
        simd.prefetch_write(to)
        simd.prefetch_write(to + 64)


@inline
def multiply_prompt(isa: Any, qt: Any, record: int, thread: int, first: int, last: int) -> None:
    """Multiply panels first to last, several together, by all tokens."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k = get_i64(record + 8 * K)
    w_stride = get_i64(record + 8 * W_STRIDE)
    width, w_tile, x_tile = tile_width(qt), weight_tile_bytes(qt), activation_tile_bytes(qt)
    chunks = (k + width - 1) // width
    if width == 64:
        chunks = (k + 255) // 256 * 4
    stride = w_tile * chunks
    at_once = max(2, min(PANELS, PANELS_BYTES // stride) // 2 * 2)
    panels = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    sums = panels + at_once * stride
    transposed = sums + sums_bytes(qt)
    groups = (tokens + 15) // 16
    scaled = has_scaled_blocks(qt)
    blocks = (k + 255) // 256
    exact = transposed + 1024 + 64
    scales = exact + 4096
    # Tiles that are multiplied before their sums are stored: those of a block, or all.
    span = 4 if scaled else chunks
    tiles.tiles_begin(transposed + 1024)
    for panel in range(first, last, at_once):
        count = min(at_once, last - panel)
        for p in range(count):
            source = get_i64(record + 8 * W) + 16 * (panel + p) * w_stride
            ahead = source + 16 * at_once * w_stride
            unpack_16_rows(isa, qt, source, w_stride, panels + p * stride, k, ahead, transposed)
            if scaled:
                load_scales(qt, source, w_stride, blocks, scales + 64 * blocks * p)
        for group in range(0, groups, 2):
            x0 = get_i64(record + 8 * TILES) + group * x_tile * chunks
            x1 = x0 + x_tile * chunks
            token = 16 * group
            for p in range(0, count, 2):
                both = p + 1 < count
                w0 = panels + p * stride
                w1 = w0 + stride
                _prefetch_out(record, panel + p, token, min(token + 32, tokens))
                if scaled:
                    begin_tiles(sums, 4)
                for start in range(0, chunks, positive(span)):
                    tiles.tiles_zero()
                    for c in range(start, start + span):
                        at = c * w_tile
                        _multiply(qt, w0 + at, w1 + at, x0 + c * x_tile, x1 + c * x_tile)
                    if scaled:
                        tiles.tiles_store(exact)
                        d = scales + 64 * blocks * p + 16 * start
                        to = sums + start // span % 4 * 4096
                        add_tile(exact, d, to)
                        add_tile(exact + 1024, d, to + 1024)
                        if both:
                            d += 64 * blocks
                            add_tile(exact + 2048, d, to + 2048)
                            add_tile(exact + 3072, d, to + 3072)
                    else:
                        tiles.tiles_store(sums)
                if scaled:
                    end_tiles(sums, 4)
                row = 16 * (panel + p)
                store_sums(qt, record, sums, transposed, row, token, tokens)
                store_sums(qt, record, sums + 1024, transposed, row, token + 16, tokens)
                if both:
                    store_sums(qt, record, sums + 2048, transposed, row + 16, token, tokens)
                    store_sums(qt, record, sums + 3072, transposed, row + 16, token + 16, tokens)
    tiles.tiles_end()
