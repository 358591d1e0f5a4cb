"""What the types with blocks of 32 share: one dot product over two blocks per 64-byte vector.

A type states its block's size, how its codes are read, and by how much the unsigned codes stand
above the signed values. That offset, times the block's scale, is a minimum like that of Q4_1: it
multiplies the sum of the block's activations, which these carry with them. Scales of 16 blocks are
read and multiplied together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import choose, inline, intrinsic
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants.dot import AHEAD, register_dot, tree_sum
from trinity_kernels.quants.unpack import ask_for, register_unpack


@dataclass(frozen=True, slots=True)
class Block32:
    """How one type of 32-element blocks is read.

    ``codes(isa, first, second)``: 64 codes as a byte vector from the addresses of two blocks, of
    which the second is 0 where the row ends; ``code(block, j)``: one of them. ``offset_bits``: the
    codes are unsigned and stand 2**offset_bits above the signed ones (0: no offset).
    ``signed``: the codes are signed bytes, and lie as such at byte ``bytes_at`` if that is not 0.
    ``min_at``: byte of a block's float16 minimum. ``power_of_2``: a block begins with an exponent
    of 8 bits, the power of 2 above its scale, instead of with the scale as float16.
    """

    nbytes: int
    codes: Callable[..., Any]
    code: Callable[..., Any]
    offset_bits: int = 0
    signed: bool = False
    min_at: int = 0
    bytes_at: int = 0
    power_of_2: bool = False


_BLOCKS: dict[str, Block32] = {}


def register_block32(
    quant: str, block: Block32, *, panel: Callable[..., Any] | None = None,
    **levels: Callable[..., Any],
) -> None:  # fmt: skip
    """Give a type of 32-element blocks its compiled code; ``levels`` as register_dot's."""
    _BLOCKS[quant] = block
    register_dot(quant, "q8", vector=_dot, portable=_portable_dot, **levels)
    register_unpack(quant, panel=panel or _unpack)


def block_of(quant: str) -> Block32:
    """How a type's blocks are read."""
    return _BLOCKS[quant]


def block32_types() -> frozenset[str]:
    """The types that are registered here."""
    return frozenset(_BLOCKS)


def _nbytes(qt: Any) -> int:
    return _BLOCKS[qt.value].nbytes


def _min_at(qt: Any) -> int:
    return _BLOCKS[qt.value].min_at


def _offset(qt: Any) -> int:
    bits = _BLOCKS[qt.value].offset_bits
    return 1 << bits if bits else 0


def _signed(qt: Any) -> bool:
    return _BLOCKS[qt.value].signed


def _code(qt: Any, block: int, j: int) -> Any:
    return _BLOCKS[qt.value].code(block, j)


def codes_of_pair(isa: Any, qt: Any, first: int, second: int) -> Any:
    """The type's ``codes`` (Block32)."""


def _scale(qt: Any, block: int) -> Any:
    """A block's scale."""
    return memory.get_e8m0(block) if _BLOCKS[qt.value].power_of_2 else memory.get_f16(block)


def strided_scales(qt: Any, column: int, stride: int) -> Any:
    """The scales of 16 blocks, ``stride`` bytes apart."""


def _tail_scales(qt: Any, column: int, stride: int, count: int) -> Any: ...


def _portable_dot(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    lanes = np.zeros(16, np.float32)
    least = np.zeros(16, np.float32)
    scales = x + (k + 63) // 64 * 64
    sums = scales + (k + 511) // 512 * 64
    for b in range(k // 32):
        block = w + b * _nbytes(qt)
        d = _scale(qt, block)
        scale = np.float32(d * memory.get_f32(scales + 4 * b))
        for g in range(8):
            total = 0
            for t in range(4):
                a = int(memory.get_i8(x + 32 * b + 4 * g + t))
                total += int(_code(qt, block, 4 * g + t)) * a
            lane = 8 * (b % 2) + g
            lanes[lane] = memory.fma_f32(scale, np.float32(total), lanes[lane])
        m = np.float32(d * np.float32(-_offset(qt)))
        if _min_at(qt) != 0:
            m = memory.get_f16(block + _min_at(qt))
        if not _signed(qt):
            least[b % 16] = memory.fma_f32(m, memory.get_f32(sums + 4 * b), least[b % 16])
    if _signed(qt):
        return tree_sum(lanes)
    return np.float32(tree_sum(lanes) + tree_sum(least))


@inline
def dot_tail(isa: Any, qt: Any, w: int, x: int, k: int, acc: Any, least: Any) -> Any:
    """Add the blocks behind the last 16 whole ones to the sums of those, and finish."""
    scales = x + (k + 63) // 64 * 64
    sums = scales + (k + 511) // 512 * 64
    groups = sums + (k + 511) // 512 * 64
    nbytes = _nbytes(qt)
    done = k // 512 * 16
    left = k // 32 - done
    if left > 0:
        at = w + done * nbytes
        d = _tail_scales(qt, at, nbytes, left)
        scale = d * simd.load_f32x16(scales + 4 * done)
        if not _signed(qt):
            m = d * simd.splat_f32x16(np.float32(-_offset(qt)))
            if _min_at(qt) != 0:
                m = strided_tail_f16(at + _min_at(qt), nbytes, left)
            least = simd.fma_f32x16(m, simd.load_f32x16(sums + 4 * done), least)
        for j in range((left + 1) // 2):
            first = at + 2 * j * nbytes
            second = first + nbytes
            if 2 * j + 1 == left:
                second = 0
            c = 32 * done + 64 * j
            factor = simd.pair_f32x16(lane(scale, 2 * j), lane(scale, 2 * j + 1))
            acc = simd.fma_f32x16(factor, _pair(isa, qt, first, second, x + c, groups + c), acc)
    if _signed(qt):
        return simd.sum_f32x16(acc)
    return np.float32(simd.sum_f32x16(acc) + simd.sum_f32x16(least))


def _dot(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    acc = simd.splat_f32x16(np.float32(0))
    least = simd.splat_f32x16(np.float32(0))
    scales = x + (k + 63) // 64 * 64
    sums = scales + (k + 511) // 512 * 64
    groups = sums + (k + 511) // 512 * 64
    nbytes = _nbytes(qt)
    for s in range(k // 512):
        at = w + 16 * nbytes * s
        ahead = at + AHEAD
        d = strided_scales(qt, at, nbytes)
        scale = d * simd.load_f32x16(scales + 64 * s)
        if not _signed(qt):
            m = d * simd.splat_f32x16(np.float32(-_offset(qt)))
            if _min_at(qt) != 0:
                m = strided_f16x16(at + _min_at(qt), nbytes)
            least = simd.fma_f32x16(m, simd.load_f32x16(sums + 64 * s), least)
        c = x + 512 * s
        g = groups + 512 * s
        two = 2 * nbytes
        simd.prefetch(ahead)
        acc = simd.fma_f32x16(spread(scale, 0), _pair(isa, qt, at, at + nbytes, c, g), acc)
        at += two
        simd.prefetch(ahead + two)
        acc = simd.fma_f32x16(
            spread(scale, 1), _pair(isa, qt, at, at + nbytes, c + 64, g + 64), acc
        )
        at += two
        simd.prefetch(ahead + 2 * two)
        acc = simd.fma_f32x16(
            spread(scale, 2), _pair(isa, qt, at, at + nbytes, c + 128, g + 128), acc
        )
        at += two
        simd.prefetch(ahead + 3 * two)
        acc = simd.fma_f32x16(
            spread(scale, 3), _pair(isa, qt, at, at + nbytes, c + 192, g + 192), acc
        )
        at += two
        simd.prefetch(ahead + 4 * two)
        acc = simd.fma_f32x16(
            spread(scale, 4), _pair(isa, qt, at, at + nbytes, c + 256, g + 256), acc
        )
        at += two
        simd.prefetch(ahead + 5 * two)
        acc = simd.fma_f32x16(
            spread(scale, 5), _pair(isa, qt, at, at + nbytes, c + 320, g + 320), acc
        )
        at += two
        simd.prefetch(ahead + 6 * two)
        acc = simd.fma_f32x16(
            spread(scale, 6), _pair(isa, qt, at, at + nbytes, c + 384, g + 384), acc
        )
        at += two
        simd.prefetch(ahead + 7 * two)
        acc = simd.fma_f32x16(
            spread(scale, 7), _pair(isa, qt, at, at + nbytes, c + 448, g + 448), acc
        )
    return dot_tail(isa, qt, w, x, k, acc, least)


def _unpack(
    isa: Any, qt: Any, w: int, stride: int, to: int, k: int, ahead: int, spare: int
) -> None:  # fmt: skip
    """d * code + minimum as bfloat16, one block to a tile line; 16 rows' scales at once."""
    nbytes = _nbytes(qt)
    for b in range(k // 32):
        column = w + b * nbytes
        ask_for(ahead + 16 * nbytes * b, 16 * nbytes)
        simd.store_f32x16(spare, strided_scales(qt, column, stride))
        if _min_at(qt) != 0:
            simd.store_f32x16(spare + 64, strided_f16x16(column + _min_at(qt), stride))
        for row in range(16):
            block = column + row * stride
            codes = codes_of_pair(isa, qt, block, 0)
            low = simd.widen_quarter_i8x64(codes, 0) - simd.splat_i32x16(_offset(qt))
            high = simd.widen_quarter_i8x64(codes, 1) - simd.splat_i32x16(_offset(qt))
            d = simd.splat_f32x16(memory.get_f32(spare + 4 * row))
            first = simd.to_f32x16(low) * d
            second = simd.to_f32x16(high) * d
            if _min_at(qt) != 0:
                m = simd.splat_f32x16(memory.get_f32(spare + 64 + 4 * row))
                first = first + m
                second = second + m
            tiles.store_bf16x32(to + 1024 * b + 64 * row, first, second)


def _pair(isa: Any, qt: Any, first: int, second: int, x: int, groups: int) -> Any: ...


def _unsigned_pair(isa: Any, qt: Any, first: int, second: int, x: int, groups: int) -> Any:
    zero = simd.splat_i32x16(0)
    return simd.to_f32x16(
        byte_dots.dot_u8i8(isa, zero, codes_of_pair(isa, qt, first, second), simd.load_i8x64(x))
    )


def _signed_pair(isa: Any, qt: Any, first: int, second: int, x: int, groups: int) -> Any:
    sums = simd.load_i32x16(groups)
    codes = codes_of_pair(isa, qt, first, second)
    return simd.to_f32x16(byte_dots.dot_i8i8_sums(isa, sums, codes, simd.load_i8x64(x)))


if not jit_disabled():
    from llvmlite import ir
    from numba.core import cgutils, types

    from trinity_kernels import byte_dots, simd, tiles
    from trinity_kernels.quants import emit

    @choose(_nbytes)
    def _nbytes_of(qt: Any) -> Any:
        nbytes = _BLOCKS[qt.value].nbytes
        return lambda qt: nbytes

    @choose(_min_at)
    def _min_at_of(qt: Any) -> Any:
        min_at = _BLOCKS[qt.value].min_at
        return lambda qt: min_at

    @choose(_signed)
    def _signed_of(qt: Any) -> Any:
        return (lambda qt: True) if _BLOCKS[qt.value].signed else (lambda qt: False)

    @choose(_offset)
    def _offset_of(qt: Any) -> Any:
        bits = _BLOCKS[qt.value].offset_bits
        offset = 1 << bits if bits else 0
        return lambda qt: offset

    @choose(_code)
    def _code_of(qt: Any, block: Any, j: Any) -> Any:
        code = inline(_BLOCKS[qt.value].code)
        return lambda qt, block, j: code(block, j)

    @choose(codes_of_pair)
    def _codes_of(isa: Any, qt: Any, first: Any, second: Any) -> Any:
        codes = inline(_BLOCKS[qt.value].codes)
        return lambda isa, qt, first, second: codes(isa, first, second)

    @choose(_scale)
    def _scale_of(qt: Any, block: Any) -> Any:
        if _BLOCKS[qt.value].power_of_2:
            return lambda qt, block: memory.get_e8m0(block)
        return lambda qt, block: memory.get_f16(block)

    @choose(strided_scales)
    def _strided_scales_of(qt: Any, column: Any, stride: Any) -> Any:
        if _BLOCKS[qt.value].power_of_2:
            return lambda qt, column, stride: strided_e8m0x16(column, stride)
        return lambda qt, column, stride: strided_f16x16(column, stride)

    @choose(_tail_scales)
    def _tail_scales_of(qt: Any, column: Any, stride: Any, count: Any) -> Any:
        if _BLOCKS[qt.value].power_of_2:
            return lambda qt, column, stride, count: strided_tail_e8m0(column, stride, count)
        return lambda qt, column, stride, count: strided_tail_f16(column, stride, count)

    @choose(_pair)
    def _pair_of(isa: Any, qt: Any, first: Any, second: Any, x: Any, groups: Any) -> Any:
        if _BLOCKS[qt.value].signed:
            return _signed_pair
        return _unsigned_pair

    def _strided(element: Any, widen: Callable[..., Any], doc: str) -> Callable[..., Any]:
        kind = ir.VectorType(element, 16)

        def strided(typingctx: Any, address: Any, stride: Any) -> Any:
            def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                found = ir.Constant(kind, ir.Undefined)
                for i in range(16):
                    at = builder.add(args[0], builder.mul(args[1], simd.I64(i)))
                    one = builder.load(simd.pointer(builder, at, element), align=1)
                    found = builder.insert_element(found, one, simd.I32(i))
                return widen(builder, found)

            return simd.F32X16(types.intp, types.intp), codegen

        strided.__doc__ = doc
        return intrinsic(strided)

    def _strided_tail(element: Any, widen: Callable[..., Any], doc: str) -> Callable[..., Any]:
        kind = ir.VectorType(element, 16)

        def strided(typingctx: Any, address: Any, stride: Any, count: Any) -> Any:
            def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                buffer = cgutils.alloca_once(builder, kind)
                builder.store(ir.Constant(kind, None), buffer)
                lanes = builder.bitcast(buffer, element.as_pointer())
                with cgutils.for_range(builder, args[2]) as loop:
                    at = builder.add(args[0], builder.mul(args[1], loop.index))
                    one = builder.load(simd.pointer(builder, at, element), align=1)
                    builder.store(one, builder.gep(lanes, [loop.index]))
                return widen(builder, builder.load(buffer, align=1))

            return simd.F32X16(types.intp, types.intp, types.intp), codegen

        strided.__doc__ = doc
        return intrinsic(strided)

    def _halves(builder: Any, halves: Any) -> Any:
        return builder.fpext(halves, simd.F32X16.ir)

    strided_f16x16 = _strided(simd.F16, _halves, "16 float16, ``stride`` bytes apart, as float32.")
    strided_e8m0x16 = _strided(simd.I8, emit.powers_of_2, "As strided_f16x16, of E8M0.")
    _TAIL = "The first ``count`` of 16; reads nothing beyond. The others are of no use."
    strided_tail_f16 = _strided_tail(simd.F16, _halves, _TAIL)
    strided_tail_e8m0 = _strided_tail(simd.I8, emit.powers_of_2, _TAIL)

    @intrinsic
    def spread(typingctx: Any, scales: Any, pair: Any) -> Any:
        """Lane 2 p in lanes 0-7 and lane 2 p + 1 in lanes 8-15, p a literal."""
        if not isinstance(pair, types.IntegerLiteral):
            return None
        p = pair.literal_value

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return simd.shuffle(builder, args[0], args[0], [2 * p] * 8 + [2 * p + 1] * 8)

        return simd.F32X16(simd.F32X16, pair), codegen

    @intrinsic
    def lane(typingctx: Any, vector: Any, index: Any) -> Any:
        """One lane."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.extract_element(args[0], args[1])

        return types.float32(simd.F32X16, types.int64), codegen

    @intrinsic
    def nibbles(typingctx: Any, packed: Any) -> Any:
        """Two blocks of 16 bytes to 64 codes: each block's low nibbles, then its high ones."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            order = [*range(16), *range(16), *range(16, 32), *range(16, 32)]
            doubled = simd.shuffle(builder, args[0], args[0], order)
            words = builder.bitcast(doubled, simd.I16X32.ir)
            counts = ([0] * 8 + [4] * 8) * 2
            shifted = builder.lshr(words, ir.Constant(simd.I16X32.ir, counts))
            codes = builder.bitcast(shifted, simd.I8X64.ir)
            return builder.and_(codes, ir.Constant(simd.I8X64.ir, [15] * 64))

        return simd.I8X64(simd.I8X32), codegen

    @intrinsic
    def fifth_bits(typingctx: Any, low: Any, high: Any) -> Any:
        """64 bits, 32 of each block, to bytes of 0 or 16."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            i64 = ir.IntType(64)
            bits = builder.or_(
                builder.zext(args[0], i64), builder.shl(builder.zext(args[1], i64), i64(32))
            )
            mask = builder.bitcast(bits, ir.VectorType(ir.IntType(1), 64))
            vec = simd.I8X64.ir
            return builder.select(mask, ir.Constant(vec, [16] * 64), ir.Constant(vec, [0] * 64))

        return simd.I8X64(types.uint32, types.uint32), codegen

    @inline
    def load_nibbles(first: int, second: int) -> Any:
        """64 nibbles from two blocks' 16 bytes; ``second`` 0 stands for zeros."""
        low = simd.load_i8x16(first)
        if second == 0:
            return nibbles(simd.concat_i8x16(low, simd.splat_i8x16(0)))
        return nibbles(simd.concat_i8x16(low, simd.load_i8x16(second)))
