"""Unpacking of superblocks to bfloat16, a row at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinity_kernels import tiles
from trinity_kernels.deferred import simd, types
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.readers import (
    codes_of_part,
    elements,
    minima,
    minima_of,
    nbytes,
    reader_of,
    scales_of,
)
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.tags import chosen


def unpack_superblock(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    """Unpack a row: scale * value - minimum as bfloat16, 32 to a line (unpack.py)."""
    size, width = nbytes(qt), elements(qt)
    for b in range(k // width):
        block = w + b * size
        s = scales_of(qt, block)
        m = s
        if minima(qt) == 16:
            m = minima_of(qt, block)
        lines = to + 32 * width * b
        _unpack_part(isa, qt, s, m, block, lines, 0)
        if width > 64:
            _unpack_part(isa, qt, s, m, block, lines, 1)
        if width > 128:
            _unpack_part(isa, qt, s, m, block, lines, 2)
            _unpack_part(isa, qt, s, m, block, lines, 3)


def _splat(above: int) -> Callable[..., Any]:
    @instructions("f32x16", "tag", "f32x16", "literal", "literal")
    def splat(builder: Any, qt: Any, vector: Any, part: Any, quarter: Any) -> Any:
        """The lane of a quarter of a part (both literals), copied to every lane."""
        block = reader_of(qt.value, SuperBlock)
        lane = (64 * part + 16 * quarter) // block.group
        lane += above if block.minima == 32 else 0
        return simd.shuffle(builder, vector, vector, [lane] * 16)

    return splat


splat_scale, splat_minimum = _splat(0), _splat(8)


@chosen
def _unpack_part(isa: Any, qt: Any, s: Any, m: Any, block: Any, to: Any, part: Any) -> Any:
    if not isinstance(part, types.IntegerLiteral):
        return None
    p = part.literal_value
    layout = reader_of(qt.value, SuperBlock)
    offset = layout.offset

    def plain(isa: Any, qt: Any, s: Any, m: Any, block: int, to: int, part: int) -> None:
        codes = codes_of_part(isa, qt, block, p) - simd.splat_i8x64(offset)
        a = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 0)) * splat_scale(qt, s, p, 0)
        b = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 1)) * splat_scale(qt, s, p, 1)
        tiles.store_bf16x32(to + 2048 * p, a, b)
        a = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 2)) * splat_scale(qt, s, p, 2)
        b = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 3)) * splat_scale(qt, s, p, 3)
        tiles.store_bf16x32(to + 2048 * p + 1024, a, b)

    def least(isa: Any, qt: Any, s: Any, m: Any, block: int, to: int, part: int) -> None:
        codes = codes_of_part(isa, qt, block, p)
        a = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 0)) * splat_scale(qt, s, p, 0)
        b = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 1)) * splat_scale(qt, s, p, 1)
        a = a - splat_minimum(qt, m, p, 0)
        b = b - splat_minimum(qt, m, p, 1)
        tiles.store_bf16x32(to + 2048 * p, a, b)
        a = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 2)) * splat_scale(qt, s, p, 2)
        b = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 3)) * splat_scale(qt, s, p, 3)
        a = a - splat_minimum(qt, m, p, 2)
        b = b - splat_minimum(qt, m, p, 3)
        tiles.store_bf16x32(to + 2048 * p + 1024, a, b)

    return least if layout.minima else plain
