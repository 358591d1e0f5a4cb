"""Up to TILE_ROWS tokens on tiles: a decode batch, or the tokens of a speculative proposal.

Weights are read, unpacked and multiplied in small pieces, so that unpacked weights stay in the
first-level cache. Following weights are prefetched in the order in which they are read.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import tiles
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.memory import get_i64, slots_of
from trinity_kernels.ops.matmul import tiles_int8
from trinity_kernels.ops.matmul.activations import bf16_tiles_at
from trinity_kernels.ops.matmul.operands import (
    SCRATCH,
    SCRATCH_STRIDE,
    TILE_ROWS,
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
    INT8_SCRATCH_BYTES,
    activation_tile_bytes,
    has_scaled_blocks,
    is_int8,
    is_q8,
    panels_at_once,
    tile_parts,
    tile_width,
    weight_tile_bytes,
)
from trinity_kernels.ops.matmul.tile_sums import store_sums, sums_bytes
from trinity_kernels.ops.matmul.unpack import bytes_of_256, unpack_16_rows
from trinity_kernels.record import ROWS
from trinity_kernels.tags import chosen


@chosen
def _multiply_four(qt: Any, w: Any, stride: Any, x: Any) -> Any:
    product = tiles.narrow_i8 if is_ternary(qt) else tiles.narrow_bf16[tile_parts(qt.value)]
    return lambda qt, w, stride, x: product(w, stride, x)


@inline
def _x_at(qt: Any, k: int) -> int:
    """Bytes from the tiles of up to TILE_ROWS tokens to those that _unpacked multiplies."""
    if is_q8(qt):
        return bf16_tiles_at(k, TILE_ROWS)
    return 0


@inline
def _add(a: int, b: int, to: int) -> None:
    simd.store_f32x16(to, simd.load_f32x16(a) + simd.load_f32x16(b))


@inline
def _unpacked(isa: Any, qt: Any, record: int, thread: int, first: int, last: int) -> None:
    """Unpack and multiply several panels together, 256 elements at a time."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k, w, w_stride = slots_of(record, (K, W, W_STRIDE))
    width, w_tile, x_tile = tile_width(qt), weight_tile_bytes(qt), activation_tile_bytes(qt)
    at_once, part, part_bytes = panels_at_once(qt), 256, bytes_of_256(qt)
    scaled = has_scaled_blocks(qt)
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    stride = part // width * w_tile
    sums = scratch + at_once * stride
    transposed = sums + sums_bytes(qt)
    exact = transposed + 1024 + 64
    scales = exact + 4096
    tiles.tiles_begin(transposed + 1024)
    for panel in range(first, last, at_once):
        count = min(at_once, last - panel)
        rows = w + 16 * panel * w_stride
        # The next panels, in order, a part at a time: there when their turn comes.
        ahead = rows + 16 * at_once * w_stride
        if scaled:
            begin_tiles(sums, count)
        else:
            tiles.tiles_zero()
        x = get_i64(record + 8 * TILES) + _x_at(qt, k)
        for start in range(0, k, part):
            if scaled:
                tiles.tiles_zero()
            size = min(part, k - start)
            for p in range(count):
                source = rows + 16 * p * w_stride
                to = scratch + p * stride
                unpack_16_rows(isa, qt, source, w_stride, to, size, ahead, transposed)
                ahead += 16 * part_bytes
            count_of_tiles = part // width if width == 64 else (size + 31) // 32
            for c in range(count_of_tiles):
                _multiply_four(qt, scratch + c * w_tile, stride, x)
                x += x_tile
            if scaled:
                tiles.tiles_store(exact)
                for p in range(count):
                    load_scales(qt, rows + 16 * p * w_stride, w_stride, 1, scales)
                    to = sums + start // part % 4 * 4096 + 1024 * p
                    add_tile(exact + 1024 * p, scales, to)
            rows += part_bytes
        if scaled:
            end_tiles(sums, count)
        else:
            tiles.tiles_store(sums)
        if at_once == 2:
            for line in range(0, 1024, 64):
                _add(sums + line, sums + 1024 + line, sums + line)
                _add(sums + 2048 + line, sums + 3072 + line, sums + 1024 + line)
        for p in range(count):
            store_sums(qt, record, sums + 1024 * p, transposed, 16 * (panel + p), 0, tokens)
    tiles.tiles_end()


@inline
def _integers(isa: Any, qt: Any, record: int, thread: int, first: int, last: int) -> None:
    """Multiply the codes of four panels together, as integers."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k = get_i64(record + 8 * K)
    w_stride = get_i64(record + 8 * W_STRIDE)
    at_once = panels_at_once(qt)
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    sums = scratch + INT8_SCRATCH_BYTES
    transposed = sums + 4096
    tiles_int8.begin(qt, transposed + 1024)
    for panel in range(first, last, at_once):
        count = min(at_once, last - panel)
        w = get_i64(record + 8 * W) + 16 * panel * w_stride
        # The next panels, in order, a part at a time: there when their turn comes.
        ahead = w + 16 * at_once * w_stride
        x = get_i64(record + 8 * TILES)
        tiles_int8.multiply_panels(isa, qt, w, w_stride, count, ahead, x, k, scratch, sums)
        for p in range(count):
            store_sums(qt, record, sums + 1024 * p, transposed, 16 * (panel + p), 0, tokens)
    tiles.tiles_end()


@chosen
def multiply_batch(isa: Any, qt: Any, record: Any, thread: Any, first: Any, last: Any) -> Any:
    """Multiply panels first to last by up to TILE_ROWS tokens."""
    body = _integers if is_int8(qt) else _unpacked
    return lambda isa, qt, record, thread, first, last: body(isa, qt, record, thread, first, last)
