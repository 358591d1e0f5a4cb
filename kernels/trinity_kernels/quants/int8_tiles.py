"""At most 16 tokens on int8 tiles: exact sums of a group's products, then float32.

A tile holds one group of 16 or 32 elements of 16 rows; its product with that group of 16 tokens is
int32 [row][token]. Such sums wait in the first-level cache until each row adds up scale * sum for
all tokens at once.

Tiles, vectors and memory work at the same time only where their instructions alternate closely: a
part, four groups of 16 rows, is read, multiplied, stored and added up in four turns of the loop,
each turn in four steps, which do a quarter of that for four parts in a row. A unit is a superblock
or four blocks of 32 (quants/super_tiles.py, quants/block_tiles.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import choose, inline
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants import block_tiles, super_tiles
from trinity_kernels.quants.block32 import block32_types, block_of
from trinity_kernels.quants.superblock import superblock_of

# A thread's room: codes of two parts, sums of two, scales and minima of those under way.
_CODES, _SUMS, _SCALES = 0, 4096, 12288
ROOM_BYTES = _SCALES + 4 * super_tiles.SCALES_BYTES

if not jit_disabled():
    from trinity_kernels import simd, tiles


def int8_tile_types() -> frozenset[str]:
    """The types that are multiplied so."""
    return block32_types() | super_tiles.super_tile_types()


def _sizes(qt: Any) -> Any:
    """Elements of a unit, its bytes, its parts, and the elements of a group."""


@choose(_sizes)
def _sizes_of(qt: Any) -> Any:
    if qt.value in block32_types():
        found = 128, 4 * block_of(qt.value).nbytes, 1, 32
    else:
        block, group = superblock_of(qt.value), super_tiles.group_of(qt.value)
        found = block.elements, block.nbytes, block.elements // (4 * group), group
    return lambda qt: found


def _begin(qt: Any, scratch: int) -> None: ...


@choose(_begin)
def _begin_of(qt: Any, scratch: Any) -> Any:
    in_blocks = qt.value in block32_types()
    narrow = not in_blocks and super_tiles.group_of(qt.value) == 16
    begin = tiles.groups_begin if narrow else tiles.blocks_begin
    return lambda qt, scratch: begin(scratch)


def _read(
    isa: Any, qt: Any, step: int, part: int, w: int, stride: int, left: int, room: int, turn: int
) -> None: ...


@choose(_read)
def _read_of(
    isa: Any, qt: Any, step: Any, part: Any, w: Any, stride: Any, left: Any, room: Any, turn: Any
) -> Any:
    if qt.value in block32_types():
        return lambda isa, qt, step, part, w, stride, left, room, turn: block_tiles.read(
            isa, qt, step, w, stride, left // 32, room + _CODES + turn % 2 * 2048, room + _SCALES,
            turn,
        )  # fmt: skip
    return lambda isa, qt, step, part, w, stride, left, room, turn: super_tiles.read(
        isa, qt, step, part, w, stride, room + _CODES + turn % 2 * 2048, room + _SCALES, turn
    )


def _multiply(
    qt: Any, step: int, w: int, stride: int, left: int, x: int, room: int, turn: int
) -> None: ...


@choose(_multiply)
def _multiply_of(
    qt: Any, step: Any, w: Any, stride: Any, left: Any, x: Any, room: Any, turn: Any
) -> Any:
    group = 32 if qt.value in block32_types() else super_tiles.group_of(qt.value)
    in_place = qt.value in block32_types() and bool(block_of(qt.value).bytes_at)
    if in_place:
        nbytes, at = block_of(qt.value).nbytes, block_of(qt.value).bytes_at

        def lying(
            qt: Any, step: int, w: int, stride: int, left: int, x: int, room: int, turn: int
        ) -> None:
            if 32 * step < left:
                _product(step, w + step * nbytes + at, stride, x + 512 * step)

        return lying
    per_line = 64 // group

    def written(
        qt: Any, step: int, w: int, stride: int, left: int, x: int, room: int, turn: int
    ) -> None:
        if group * step < left:
            at = room + _CODES + turn % 2 * 2048 + step // per_line * 1024
            _product(step, at + step % per_line * group, 64, x + 16 * group * step)

    return written


def _add(
    qt: Any, step: int, part: int, x_scales: int, x_sums: int, to: int, room: int, turn: int
) -> None: ...


@choose(_add)
def _add_of(
    qt: Any, step: Any, part: Any, x_scales: Any, x_sums: Any, to: Any, room: Any, turn: Any
) -> Any:
    if qt.value in block32_types():
        return lambda qt, step, part, x_scales, x_sums, to, room, turn: block_tiles.add(
            qt, step, x_scales, x_sums, to, room + _SUMS + turn % 2 * 4096, room + _SCALES, turn
        )
    return lambda qt, step, part, x_scales, x_sums, to, room, turn: super_tiles.add(
        qt, step, part, x_scales, x_sums, to, room + _SUMS + turn % 2 * 4096, room + _SCALES, turn
    )


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
def _store(step: int, room: int, turn: int) -> None:
    """The sums of a part's group, exact integers."""
    to = room + _SUMS + turn % 2 * 4096 + 1024 * step
    if step == 0:
        tiles.store_0(to)
    elif step == 1:
        tiles.store_1(to)
    elif step == 2:
        tiles.store_2(to)
    else:
        tiles.store_3(to)


@inline
def begin(qt: Any, scratch: int) -> None:
    """Configure the tiles; ``scratch`` has 64 bytes to spare."""
    _begin(qt, scratch)


@inline
def multiply_panels(
    isa: Any, qt: Any, w: int, stride: int, count: int, ahead: int, x: int, k: int, room: int,
    sums: int,
) -> None:  # fmt: skip
    """``count`` panels of 16 rows times 16 tokens: float32 [panel][row][token] at ``sums``.

    ``x``: the turned q8 form (ops/tile_activations.py). As many bytes are asked for at ``ahead``
    as are read.
    """
    elements, nbytes, parts, group = _sizes(qt)
    x_scales = x + (k + 63) // 64 * 1024
    x_sums = x_scales + (k + 511) // 512 * 1024
    for line in range(0, 1024 * count, 64):
        simd.store_f32x16(sums + line, simd.splat_f32x16(np.float32(0)))
    turns = (k + elements - 1) // elements * parts * count
    part_bytes = 16 * nbytes // parts
    # Of the parts that are read, multiplied, stored and added: unit, panel, part.
    u0, p0, n0, u1, p1, n1, u2, p2, n2, u3, p3, n3 = 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    for turn in range(turns + 3):
        source0 = w + 16 * p0 * stride + u0 * nbytes
        source1 = w + 16 * p1 * stride + u1 * nbytes
        left0, left1 = k - u0 * elements, k - u1 * elements
        x1 = x + 16 * (u1 * elements + 4 * group * n1)
        first3 = 2 * (u3 * elements + 4 * group * n3)
        for step in range(4):
            if 2 <= turn < turns + 2:
                _store(step, room, turn - 2)
            if 1 <= turn <= turns:
                _multiply(qt, step, source1, stride, left1, x1, room, turn - 1)
            if turn >= 3:
                to = sums + 1024 * p3
                _add(qt, step, n3, x_scales + first3, x_sums + first3, to, room, turn - 3)
            if turn < turns:
                _read(isa, qt, step, n0, source0, stride, left0, room, turn)
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
