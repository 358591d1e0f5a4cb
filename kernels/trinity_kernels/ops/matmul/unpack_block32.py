"""Unpacking of blocks of 32 to bfloat16, 16 rows together, so that their scales are one vector.

For 4-bit codes the 16 values of a block are a table of bfloat16, indexed by the codes.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels import memory, tiles
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.prefetch import prefetch_bytes
from trinity_kernels.ops.matmul.readers import (
    codes_of_pair,
    minima_of_16,
    minimum_at,
    nbytes,
    nibbles_at,
    offset,
    reader_of,
    scales_of_16,
)
from trinity_kernels.quants.block32 import Block32


def unpack_block32(
    isa: Any, qt: Any, w: int, stride: int, to: int, k: int, ahead: int, scratch: int
) -> None:
    """Unpack 16 rows: scale * code + minimum as bfloat16, a block to a line (unpack.py)."""
    size = nbytes(qt)
    for b in range(k // 32):
        column = w + b * size
        prefetch_bytes(ahead + 16 * size * b, 16 * size)
        simd.store_f32x16(scratch, scales_of_16(qt, column, stride))
        if minimum_at(qt) != 0:
            simd.store_f32x16(scratch + 64, minima_of_16(qt, column, stride))
        for row in range(16):
            block = column + row * stride
            codes = codes_of_pair(isa, qt, block, 0)
            low = simd.widen_quarter_i8x64(codes, 0) - simd.splat_i32x16(offset(qt))
            high = simd.widen_quarter_i8x64(codes, 1) - simd.splat_i32x16(offset(qt))
            d = simd.splat_f32x16(memory.get_f32(scratch + 4 * row))
            first = simd.to_f32x16(low) * d
            second = simd.to_f32x16(high) * d
            if minimum_at(qt) != 0:
                m = simd.splat_f32x16(memory.get_f32(scratch + 64 + 4 * row))
                first = first + m
                second = second + m
            tiles.store_bf16x32(to + 1024 * b + 64 * row, first, second)


@instructions("i16x32", "f32x16", "f32x16")
def _two_tables(builder: Any, low: Any, high: Any) -> Any:
    """The 16 values of two blocks as bfloat16, in words 0 to 15 and 16 to 31."""
    return tiles.emit_bf16x32(builder, low, high)


def _look_up(table: int) -> Any:
    @instructions("i16x32", "i16x32", "i8x16")
    def look_up(builder: Any, tables: Any, codes: Any) -> Any:
        """32 bfloat16 of one table for 16 bytes of nibbles: the low ones, then the high ones."""
        kind = simd.I16X32.ir
        both = simd.shuffle(builder, codes, codes, [*range(16), *range(16)])
        words = builder.zext(both, kind)
        words = builder.lshr(words, ir.Constant(kind, [0] * 16 + [4] * 16))
        words = builder.and_(words, ir.Constant(kind, [15] * 32))
        if table:
            words = builder.or_(words, ir.Constant(kind, [16] * 32))
        return simd.call_named(builder, "llvm.x86.avx512.permvar.hi.512", kind, [tables, words])

    return look_up


_look_up_first, _look_up_second = _look_up(0), _look_up(1)


@instructions("f32x16", "tag")
def _values(builder: Any, qt: Any) -> Any:
    """The values of the 16 codes, without scale and minimum."""
    first = -reader_of(qt.value, Block32).offset
    return ir.Constant(simd.F32X16.ir, [float(first + i) for i in range(16)])


def unpack_nibbles(
    isa: Any, qt: Any, w: int, stride: int, to: int, k: int, ahead: int, scratch: int
) -> None:
    """As unpack_block32, for codes that are nibbles (``nibbles_at``)."""
    size = nbytes(qt)
    first = nibbles_at(qt)
    for b in range(k // 32):
        column = w + b * size
        prefetch_bytes(ahead + 16 * size * b, 16 * size)
        simd.store_f32x16(scratch, scales_of_16(qt, column, stride))
        if minimum_at(qt) != 0:
            simd.store_f32x16(scratch + 64, minima_of_16(qt, column, stride))
        at = to + 1024 * b
        for row in range(0, 16, 2):
            block = column + row * stride
            low = _values(qt) * simd.splat_f32x16(memory.get_f32(scratch + 4 * row))
            high = _values(qt) * simd.splat_f32x16(memory.get_f32(scratch + 4 * row + 4))
            if minimum_at(qt) != 0:
                low = low + simd.splat_f32x16(memory.get_f32(scratch + 4 * row + 64))
                high = high + simd.splat_f32x16(memory.get_f32(scratch + 4 * row + 68))
            tables = _two_tables(low, high)
            codes = simd.load_i8x16(block + first)
            simd.store_i16x32(at + 64 * row, _look_up_first(tables, codes))
            block += stride
            codes = simd.load_i8x16(block + first)
            simd.store_i16x32(at + 64 * row + 64, _look_up_second(tables, codes))
