"""What the types with blocks of 32 share: one dot product over two blocks per 64-byte vector.

A type states its block's size, how its codes are read, and by how much the unsigned codes stand
above the signed values: the integer sum then starts at minus that many times the sum of the
activations, which the activations carry with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import choose, inline, intrinsic
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants.dot import register_dot, tree_sum
from trinity_kernels.quants.unpack import register_unpack


@dataclass(frozen=True, slots=True)
class Block32:
    """How one type of 32-element blocks is read.

    ``codes(first, second)``: 64 codes as a byte vector from the addresses of two blocks, of which
    the second is 0 where the row ends; ``code(block, j)``: one signed code. ``offset_bits``: the
    vector's codes are unsigned and stand 2**offset_bits above the signed ones (0: no offset).
    ``signed``: the vector's codes are signed bytes. ``min_at``: byte of a block's float16 minimum.
    """

    nbytes: int
    codes: Callable[..., Any]
    code: Callable[..., Any]
    offset_bits: int = 0
    signed: bool = False
    min_at: int = 0


_BLOCKS: dict[str, Block32] = {}


def register_block32(quant: str, block: Block32) -> None:
    """Give a type of 32-element blocks its compiled dot product."""
    _BLOCKS[quant] = block
    register_dot(quant, "q8", vector=_dot, portable=_portable_dot)
    register_unpack(quant, _unpack)


def _nbytes(qt: Any) -> int:
    return _BLOCKS[qt.value].nbytes


def _min_at(qt: Any) -> int:
    return _BLOCKS[qt.value].min_at


def _offset(qt: Any) -> int:
    bits = _BLOCKS[qt.value].offset_bits
    return 1 << bits if bits else 0


def _code(qt: Any, block: int, j: int) -> Any:
    return _BLOCKS[qt.value].code(block, j)


def _codes(qt: Any, first: int, second: int) -> Any: ...


def _products(isa: Any, qt: Any, sums: Any, codes: Any, a: Any) -> Any: ...


def _portable_dot(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    lanes = np.zeros(16, np.float32)
    padded = (k + 63) // 64 * 64
    for b in range(k // 32):
        block = w + b * _nbytes(qt)
        scale = memory.get_f32(x + padded + 4 * b)
        d = memory.get_f16(block) * scale
        for g in range(8):
            total = 0
            plain = 0
            for t in range(4):
                a = int(memory.get_i8(x + 32 * b + 4 * g + t))
                total += int(_code(qt, block, 4 * g + t)) * a
                plain += a
            lane = 8 * (b % 2) + g
            lanes[lane] = np.float32(lanes[lane] + d * np.float32(total))
            if _min_at(qt) != 0:
                m = memory.get_f16(block + _min_at(qt)) * scale
                lanes[lane] = np.float32(lanes[lane] + m * np.float32(plain))
    return tree_sum(lanes)


def _dot(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    acc = simd.splat_f32x16(np.float32(0))
    scales = x + (k + 63) // 64 * 64
    sums = scales + (k + 63) // 64 * 8
    nbytes = _nbytes(qt)
    for p in range(k // 64):
        first = w + 2 * p * nbytes
        acc = _step(isa, qt, acc, first, first + nbytes, x + 64 * p, scales + 8 * p, sums + 64 * p)
    if k % 64 != 0:
        p = k // 64
        acc = _step(isa, qt, acc, w + 2 * p * nbytes, 0, x + 64 * p, scales + 8 * p, sums + 64 * p)
    return simd.sum_f32x16(acc)


def _unpack(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    """d * code + minimum as bfloat16, one block to a tile line."""
    nbytes = _nbytes(qt)
    for b in range(k // 32):
        block = w + b * nbytes
        codes = _codes(qt, block, 0)
        low = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 0) - simd.splat_i32x16(_offset(qt)))
        high = simd.to_f32x16(simd.widen_quarter_i8x64(codes, 1) - simd.splat_i32x16(_offset(qt)))
        d = simd.splat_f32x16(memory.get_f16(block))
        low = low * d
        high = high * d
        if _min_at(qt) != 0:
            m = simd.splat_f32x16(memory.get_f16(block + _min_at(qt)))
            low = low + m
            high = high + m
        tiles.store_bf16x32(to + 1024 * b, low, high)


if jit_disabled():

    def _step(*args: Any) -> Any:
        raise NotImplementedError

else:
    from llvmlite import ir
    from numba.core import types

    from trinity_kernels import simd, tiles

    @choose(_nbytes)
    def _nbytes_of(qt: Any) -> Any:
        nbytes = _BLOCKS[qt.value].nbytes
        return lambda qt: nbytes

    @choose(_min_at)
    def _min_at_of(qt: Any) -> Any:
        min_at = _BLOCKS[qt.value].min_at
        return lambda qt: min_at

    @choose(_offset)
    def _offset_of(qt: Any) -> Any:
        bits = _BLOCKS[qt.value].offset_bits
        offset = 1 << bits if bits else 0
        return lambda qt: offset

    @choose(_code)
    def _code_of(qt: Any, block: Any, j: Any) -> Any:
        code = inline(_BLOCKS[qt.value].code)
        return lambda qt, block, j: code(block, j)

    @choose(_codes)
    def _codes_of(qt: Any, first: Any, second: Any) -> Any:
        codes = inline(_BLOCKS[qt.value].codes)
        return lambda qt, first, second: codes(first, second)

    @choose(_products)
    def _products_of(isa: Any, qt: Any, sums: Any, codes: Any, a: Any) -> Any:
        block = _BLOCKS[qt.value]
        bits = block.offset_bits
        if block.signed:
            return lambda isa, qt, sums, codes, a: simd.dot_i8i8_sums(isa, sums, codes, a)
        if bits == 0:
            return lambda isa, qt, sums, codes, a: simd.dot_u8i8(
                isa, simd.splat_i32x16(0), codes, a
            )
        return lambda isa, qt, sums, codes, a: simd.dot_u8i8(
            isa, sums << simd.splat_i32x16(bits), codes, a
        )

    @inline
    def _step(
        isa: Any, qt: Any, acc: Any, first: int, second: int, x: int, scales: int, sums: int
    ) -> Any:
        codes = _codes(qt, first, second)
        negated = simd.load_i32x16(sums)
        total = simd.to_f32x16(_products(isa, qt, negated, codes, simd.load_i8x64(x)))
        low = memory.get_f32(scales)
        high = np.float32(0)
        d_high = np.float32(0)
        m_high = np.float32(0)
        if second != 0:
            high = memory.get_f32(scales + 4)
            d_high = memory.get_f16(second)
        acc = acc + simd.pair_f32x16(memory.get_f16(first) * low, d_high * high) * total
        if _min_at(qt) != 0:
            if second != 0:
                m_high = memory.get_f16(second + _min_at(qt))
            m = simd.pair_f32x16(memory.get_f16(first + _min_at(qt)) * low, m_high * high)
            acc = acc + m * simd.to_f32x16(simd.splat_i32x16(0) - negated)
        return acc

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
