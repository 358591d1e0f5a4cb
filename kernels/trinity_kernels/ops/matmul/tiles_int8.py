"""Up to TILE_ROWS tokens on int8 tiles: exact sums of groups, added in float32.

A tile has one group of 16 or 32 elements of 16 rows. Its product with that group of 16 tokens is
int32 [row][token]. These sums are in the first-level cache until scale * sum is added for all
tokens of a row.

Tiles, vectors and memory work in parallel only if their instructions alternate closely. So a part,
four groups of 16 rows, is read, multiplied, stored and added in four iterations of the loop. An
iteration has four steps, each of which does a quarter of this for four consecutive parts. A unit is
a superblock (tiles_superblock.py) or four blocks of 32 (tiles_block32.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import tiles
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.ops.matmul import tiles_block32, tiles_superblock
from trinity_kernels.ops.matmul.activations import q8_scales, q8_sums
from trinity_kernels.ops.matmul.operands import TILE_ROWS
from trinity_kernels.ops.matmul.readers import bytes_at, nbytes
from trinity_kernels.ops.matmul.tile_layout import (
    CODES_AT,
    SCALES_AT,
    SUMS_AT,
    elements_of,
    parts_of,
    tile_group,
    unit_bytes,
)
from trinity_kernels.quants import READERS, BlockReader
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.tags import chosen

_KINDS: dict[type[BlockReader], Any] = {Block32: tiles_block32, SuperBlock: tiles_superblock}


@inline
def begin(qt: Any, scratch: int) -> None:
    """Configure the tiles; 64 bytes of ``scratch`` are overwritten."""
    if tile_group(qt) == 16:
        tiles.groups_begin(scratch)
    else:
        tiles.blocks_begin(scratch)


@chosen
def _read(
    isa: Any, qt: Any, step: Any, part: Any, w: Any, stride: Any, left: Any, scratch: Any, turn: Any
) -> Any:
    """Read a quarter of a part: its codes and scales."""
    read = _KINDS[type(READERS[qt.value])].read
    return lambda isa, qt, step, part, w, stride, left, scratch, turn: read(
        isa, qt, step, part, w, stride, left, scratch + CODES_AT + turn % 2 * 2048,
        scratch + SCALES_AT, turn,
    )  # fmt: skip


@inline
def _multiply(
    qt: Any, step: int, w: int, stride: int, left: int, x: int, scratch: int, turn: int
) -> None:
    """Multiply one group into the tile of its sums."""
    width = tile_group(qt)
    if width * step < left:
        if bytes_at(qt) != 0:
            _product(step, w + step * nbytes(qt) + bytes_at(qt), stride, x + 512 * step)
        else:
            per_line = 64 // width
            at = scratch + CODES_AT + turn % 2 * 2048 + step // per_line * 1024
            _product(step, at + step % per_line * width, 64, x + 16 * width * step)


@chosen
def _add(
    qt: Any, step: Any, part: Any, x_scales: Any, x_sums: Any, to: Any, scratch: Any, turn: Any
) -> Any:
    """Add a part's products of a quarter of the rows, times scales, to float32."""
    add = _KINDS[type(READERS[qt.value])].add
    return lambda qt, step, part, x_scales, x_sums, to, scratch, turn: add(
        qt, step, part, x_scales, x_sums, to, scratch + SUMS_AT + turn % 2 * 4096,
        scratch + SCALES_AT, turn,
    )  # fmt: skip


@inline
def _product(step: int, at: int, pitch: int, x: int) -> None:
    if step == 0:
        tiles.block_0(at, pitch, x)
    elif step == 1:
        tiles.block_1(at, pitch, x)
    elif step == 2:
        tiles.block_2(at, pitch, x)
    else:
        tiles.block_3(at, pitch, x)


@inline
def _store(step: int, scratch: int, turn: int) -> None:
    """Store the exact sums of a part's group."""
    to = scratch + SUMS_AT + turn % 2 * 4096 + 1024 * step
    if step == 0:
        tiles.store_0(to)
    elif step == 1:
        tiles.store_1(to)
    elif step == 2:
        tiles.store_2(to)
    else:
        tiles.store_3(to)


@inline
def multiply_panels(
    isa: Any, qt: Any, w: int, stride: int, count: int, ahead: int, x: int, k: int, scratch: int,
    sums: int,
) -> None:  # fmt: skip
    """Multiply ``count`` panels of 16 rows by 16 tokens: float32 [panel][row][token] at ``sums``.

    ``x``: the q8 form as tiles (activations.py). At ``ahead`` as many bytes are prefetched as are
    read.
    """
    elements, nbytes, parts, group = elements_of(qt), unit_bytes(qt), parts_of(qt), tile_group(qt)
    x_scales = x + TILE_ROWS * q8_scales(k)
    x_sums = x + TILE_ROWS * q8_sums(k)
    for line in range(0, 1024 * count, 64):
        simd.store_f32x16(sums + line, simd.splat_f32x16(np.float32(0)))
    turns = (k + elements - 1) // elements * parts * count
    part_bytes = 16 * nbytes // parts
    # The unit, panel and part that are read, multiplied, stored and added.
    u0, p0, n0, u1, p1, n1, u2, p2, n2, u3, p3, n3 = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    for turn in range(turns + 3):
        source0 = w + 16 * p0 * stride + u0 * nbytes
        source1 = w + 16 * p1 * stride + u1 * nbytes
        left0, left1 = k - u0 * elements, k - u1 * elements
        x1 = x + 16 * (u1 * elements + 4 * group * n1)
        first3 = 2 * (u3 * elements + 4 * group * n3)
        for step in range(4):
            if 2 <= turn < turns + 2:
                _store(step, scratch, turn - 2)
            if 1 <= turn <= turns:
                _multiply(qt, step, source1, stride, left1, x1, scratch, turn - 1)
            if turn >= 3:
                to = sums + 1024 * p3
                _add(qt, step, n3, x_scales + first3, x_sums + first3, to, scratch, turn - 3)
            if turn < turns:
                _read(isa, qt, step, n0, source0, stride, left0, scratch, turn)
                for line in range(part_bytes * step // 4, part_bytes * (step + 1) // 4, 64):
                    simd.prefetch_l2(ahead + line)
        u3, p3, n3, u2, p2, n2, u1, p1, n1 = u2, p2, n2, u1, p1, n1, u0, p0, n0
        ahead += part_bytes
        n0 += 1
        if n0 == parts:
            n0 = 0
            p0 += 1
            if p0 == count:
                p0 = 0
                u0 += 1
