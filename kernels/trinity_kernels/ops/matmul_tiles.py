"""The matrix product on AMX tiles: for prompts and batches, 16 rows by 16 tokens at a time.

The record is that of ops/matmul.py with TILES, the activations as tiles (ops/activation_tiles.py),
and SCRATCH, per thread room for panels of 16 unpacked rows and some tiles of sums. At most 16
tokens: four panels at once (of split weights two), unpacked and multiplied 256 elements at a time,
so that no unpacked weight leaves the first-level cache; most block types go as quants/int8_tiles.py
has it. More: some panels, unpacked whole and multiplied by 32 tokens after 32. Less than ``FEW``:
the rows one by one, as in ops/matmul.py.

Numerics: sums of ternary types are exact, of a row or of 256 codes with a scale, and the rest is
done as for a single token: every result has the same bits as the vector path's. Of at most 16
tokens most block types multiply codes exactly and sum in float32, an output by its row and token
alone; else it is bfloat16 weights (scale * code, rounded) by bfloat16 activations, summed in
float32. F16 and BF16 weights are exact, their activations are split in two bfloat16, which leaves
2**-17 of each out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import choose, inline, tile_kernel
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_f32, get_f64, get_i64
from trinity_kernels.ops.activation_tiles import (
    FEW,
    GROUP,
    SCRATCH,
    SCRATCH_STRIDE,
    TILES,
    floats_at,
    padded_bytes,
)
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
    rows_by_dots,
)
from trinity_kernels.quants import int8_tiles
from trinity_kernels.quants.dot import FORMS, ternary_tail
from trinity_kernels.quants.ternary_block import (
    add_tile,
    begin_tiles,
    end_tiles,
    load_scales,
    scale_of_256,
)
from trinity_kernels.quants.unpack import step_bytes, tile_parts, unpack_panel
from trinity_kernels.record import ROWS

if not jit_disabled():
    from trinity_kernels import simd, tiles


# Panels that are unpacked together, an even number, and the bytes that they may take: the tiles of
# 32 tokens meet them in the second-level cache.
_PANELS, _PANELS_BYTES = 8, 1 << 20


def scratch_bytes(form: str, k: int) -> int:
    """Bytes that a thread needs.

    Panels, sums, their transpose, a tile configuration; of ternary types exact sums and scales.
    """
    panel = 16 * max(padded_bytes(form, k), 1024)
    room = min(_PANELS * panel, max(2 * panel, _PANELS_BYTES)) + 4096 + 1024 + 64
    return room + (16384 + 64 * _PANELS * -(-k // 256) if form == "ternary" else 0)


def _sizes(qt: Any) -> Any: ...


@choose(_sizes)
def _sizes_of(qt: Any) -> Any:
    # Elements of a tile's row, bytes of a weight and of an activation tile with its rest; where
    # tokens are few the panels at once, the elements unpacked and multiplied together, their bytes.
    w_parts, x_parts = tile_parts(qt.value, FORMS[qt.value])
    width = 64 if FORMS[qt.value] == "ternary" else 32
    panels = 4 if w_parts == 1 else 2
    found = width, 1024 * w_parts, 1024 * x_parts, panels, 256, step_bytes(qt.value)
    return lambda qt: found


def _multiply(qt: Any, w0: int, w1: int, x0: int, x1: int) -> None: ...


@choose(_multiply)
def _multiply_of(qt: Any, w0: Any, w1: Any, x0: Any, x1: Any) -> Any:
    product = tiles.wide_i8
    if FORMS[qt.value] != "ternary":
        product = tiles.wide_bf16[tile_parts(qt.value, FORMS[qt.value])]
    return lambda qt, w0, w1, x0, x1: product(w0, w1, x0, x1)


def _multiply_four(qt: Any, w: int, stride: int, x: int) -> None: ...


@choose(_multiply_four)
def _multiply_four_of(qt: Any, w: Any, stride: Any, x: Any) -> Any:
    product = tiles.narrow_i8
    if FORMS[qt.value] != "ternary":
        product = tiles.narrow_bf16[tile_parts(qt.value, FORMS[qt.value])]
    return lambda qt, w, stride, x: product(w, stride, x)


def _x_at(qt: Any, k: int) -> Any: ...


@choose(_x_at)
def _x_at_of(qt: Any, k: Any) -> Any:
    # Of few tokens in the q8 form the integers come first.
    if FORMS[qt.value] == "q8":
        return lambda qt, k: floats_at(k, GROUP)
    return lambda qt, k: 0


def _values(qt: Any, words: int, tail: int) -> Any: ...


@choose(_values)
def _values_of(qt: Any, words: Any, tail: Any) -> Any:
    if FORMS[qt.value] != "ternary":
        return lambda qt, words, tail: simd.load_f32x16(words)

    def scaled(qt: Any, words: int, tail: int) -> Any:
        return simd.load_f32x16(words) / simd.splat_f32x16(get_f32(tail))

    def exact(qt: Any, words: int, tail: int) -> Any:
        return simd.to_f32x16(simd.load_i32x16(words)) / simd.splat_f32x16(get_f32(tail))

    return scaled if scale_of_256(qt)[0] else exact


@inline
def _write_sums(
    qt: Any, record: int, sums: int, turned: int, row: int, token: int, tokens: int
) -> None:
    """One tile of sums [16 rows][16 tokens] to out."""
    scale = simd.splat_f32x16(np.float32(get_f64(record + 8 * SCALE)))
    bias = get_i64(record + 8 * BIAS)
    add = get_i64(record + 8 * ADD)
    x_stride = get_i64(record + 8 * X_STRIDE)
    tail = ternary_tail(get_i64(record + 8 * X), get_i64(record + 8 * K))
    tiles.transpose_16x16(sums, turned, 64)
    for t in range(token, min(token + 16, tokens)):
        to = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + 4 * row
        y = _values(qt, turned + 64 * (t - token), tail + t * x_stride) * scale
        if bias != 0:
            y = y + simd.load_f32x16(bias + 4 * row)
        if add != 0:
            y = simd.load_f32x16(to) + y
        simd.store_f32x16(to, y)


@inline
def _sums_bytes(qt: Any) -> int:
    """Four tiles of sums, and three times as many where blocks have a scale."""
    return 16384 if scale_of_256(qt)[0] else 4096


@inline
def _add(a: int, b: int, to: int) -> None:
    simd.store_f32x16(to, simd.load_f32x16(a) + simd.load_f32x16(b))


@inline
def _narrow(isa: Any, qt: Any, record: int, thread: int, first: int, last: int) -> None:
    """Panels first to last, some at once, for at most 16 tokens."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k = get_i64(record + 8 * K)
    w = get_i64(record + 8 * W)
    w_stride = get_i64(record + 8 * W_STRIDE)
    width, w_tile, x_tile, at_once, part, part_bytes = _sizes(qt)
    scaled = scale_of_256(qt)[0] != 0
    scratch = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    stride = part // width * w_tile
    sums = scratch + at_once * stride
    turned = sums + _sums_bytes(qt)
    exact = turned + 1024 + 64
    scales = exact + 4096
    tiles.tiles_begin(turned + 1024)
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
                unpack_panel(isa, qt, source, w_stride, to, size, ahead, turned)
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
            _write_sums(qt, record, sums + 1024 * p, turned, 16 * (panel + p), 0, tokens)
    tiles.tiles_end()


@inline
def _narrow_int8(isa: Any, qt: Any, record: int, thread: int, first: int, last: int) -> None:
    """As _narrow, for types whose codes are multiplied as integers."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k = get_i64(record + 8 * K)
    w_stride = get_i64(record + 8 * W_STRIDE)
    _, _, _, at_once, _, _ = _sizes(qt)
    room = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    sums = room + int8_tiles.ROOM_BYTES
    turned = sums + 4096
    int8_tiles.begin(qt, turned + 1024)
    for panel in range(first, last, at_once):
        count = min(at_once, last - panel)
        w = get_i64(record + 8 * W) + 16 * panel * w_stride
        # The next panels, in order, a part at a time: there when their turn comes.
        ahead = w + 16 * at_once * w_stride
        x = get_i64(record + 8 * TILES)
        int8_tiles.multiply_panels(isa, qt, w, w_stride, count, ahead, x, k, room, sums)
        for p in range(count):
            _write_sums(qt, record, sums + 1024 * p, turned, 16 * (panel + p), 0, tokens)
    tiles.tiles_end()


def _few(isa: Any, qt: Any, record: int, thread: int, first: int, last: int) -> None: ...


@choose(_few)
def _few_of(isa: Any, qt: Any, record: Any, thread: Any, first: Any, last: Any) -> Any:
    narrow = _narrow_int8 if qt.value in int8_tiles.int8_tile_types() else _narrow
    return lambda isa, qt, record, thread, first, last: narrow(isa, qt, record, thread, first, last)


@inline
def _ask_for_out(record: int, panel: int, token: int, end: int) -> None:
    """Lines that two panels will write: each is a cache miss otherwise."""
    for t in range(token, end):
        to = get_i64(record + 8 * OUT) + t * get_i64(record + 8 * OUT_STRIDE) + 64 * panel
        simd.prefetch_write(to)
        simd.prefetch_write(to + 64)


@inline
def _wide(isa: Any, qt: Any, record: int, thread: int, first: int, last: int) -> None:
    """Panels first to last, some at once, for all tokens."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    k = get_i64(record + 8 * K)
    w_stride = get_i64(record + 8 * W_STRIDE)
    width, w_tile, x_tile, _, _, _ = _sizes(qt)
    chunks = (k + width - 1) // width
    if width == 64:
        chunks = (k + 255) // 256 * 4
    stride = w_tile * chunks
    at_once = max(2, min(_PANELS, _PANELS_BYTES // stride) // 2 * 2)
    panels = get_i64(record + 8 * SCRATCH) + thread * get_i64(record + 8 * SCRATCH_STRIDE)
    sums = panels + at_once * stride
    turned = sums + _sums_bytes(qt)
    groups = (tokens + 15) // 16
    scaled = scale_of_256(qt)[0] != 0
    blocks = (k + 255) // 256
    exact = turned + 1024 + 64
    scales = exact + 4096
    # Tiles that are multiplied before their sums are taken: a block's, or all.
    span = 4 if scaled else chunks
    tiles.tiles_begin(turned + 1024)
    for panel in range(first, last, at_once):
        count = min(at_once, last - panel)
        for p in range(count):
            source = get_i64(record + 8 * W) + 16 * (panel + p) * w_stride
            ahead = source + 16 * at_once * w_stride
            unpack_panel(isa, qt, source, w_stride, panels + p * stride, k, ahead, turned)
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
                _ask_for_out(record, panel + p, token, min(token + 32, tokens))
                if scaled:
                    begin_tiles(sums, 4)
                for start in range(0, chunks, span):
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
                _write_sums(qt, record, sums, turned, row, token, tokens)
                _write_sums(qt, record, sums + 1024, turned, row, token + 16, tokens)
                if both:
                    _write_sums(qt, record, sums + 2048, turned, row + 16, token, tokens)
                    _write_sums(qt, record, sums + 3072, turned, row + 16, token + 16, tokens)
    tiles.tiles_end()


@tile_kernel
def matmul_tiles(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Panels of 16 rows, shared out evenly; see the module."""
    tokens = get_i64(get_i64(record + 8 * ROWS))
    n = get_i64(record + 8 * N)
    panels = n // 16
    first = panels * thread // threads
    last = panels * (thread + 1) // threads
    if tokens < FEW:
        stop = 16 * last
        if thread == threads - 1:
            stop = n
        rows_by_dots(isa, qt, record, 16 * first, stop, tokens)
        return
    if tokens <= GROUP:
        _few(isa, qt, record, thread, first, last)
    else:
        _wide(isa, qt, record, thread, first, last)
    if thread == threads - 1:
        rows_by_dots(isa, qt, record, 16 * panels, n, tokens)
