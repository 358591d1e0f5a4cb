"""Dot products of 4-bit codes where 64 bytes are one register: a pair of blocks per load.

A pair's bytes are spread by one byte shuffle to low nibbles, high nibbles, twice. High nibbles stay
where they are in their bytes: their sums are 16 times too large, which the scale of their lanes
takes back, exactly. The scales and minima of 16 blocks come out of the same loads by shuffles of
words.
The same bits as dot_block32.py gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.isa import jit_disabled
from trinity_kernels.ops.matmul.activations import q8_scales, q8_sums
from trinity_kernels.ops.matmul.dot_block32 import dot_block32, dot_tail
from trinity_kernels.ops.matmul.dot_nibbles_avx2 import dot_nibbles_avx2
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import minimum_at, nbytes, offset, reader_of
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.tags import per_level

if not jit_disabled():
    from llvmlite import ir
    from numba.core import types

    from trinity_kernels import byte_dots, simd
    from trinity_kernels._jit import intrinsic

    @intrinsic
    def _load_pair(typingctx: Any, qt: Any, address: Any) -> Any:
        """Two blocks at ``address``; reads nothing beyond."""
        nbytes = 2 * reader_of(qt.value, Block32).nbytes

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            vec = simd.I8X64.ir
            mask = ir.Constant(ir.VectorType(ir.IntType(1), 64), [1] * nbytes + [0] * (64 - nbytes))
            at = simd.pointer(builder, args[1], vec)
            operands = [at, simd.I32(1), mask, ir.Constant(vec, None)]
            return simd.call_named(builder, "llvm.masked.load.v64i8.p0", vec, operands)

        return simd.I8X64(qt, types.intp), codegen

    @intrinsic
    def _nibbles(typingctx: Any, qt: Any, pair: Any) -> Any:
        """Each block's codes as code (elements 0 to 15) and as 16 * code (16 to 31)."""
        reader = reader_of(qt.value, Block32)
        first = reader.nibbles_at

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            one = list(range(first, first + 16))
            two = [reader.nbytes + i for i in one]
            spread = simd.shuffle(builder, args[1], args[1], one + one + two + two)
            mask = ([15] * 16 + [240] * 16) * 2
            return builder.and_(spread, ir.Constant(simd.I8X64.ir, mask))

        return simd.I8X64(qt, simd.I8X64), codegen

    @intrinsic
    def _first_words(
        typingctx: Any, qt: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
    ) -> Any:
        """Of eight pairs the first word of each block, block after block."""
        second = reader_of(qt.value, Block32).nbytes // 4  # an odd half of it of 18 bytes

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pairs = [builder.bitcast(x, simd.I32X16.ir) for x in args[1:]]
            lanes = [0, second]
            while len(pairs) > 1:
                lanes = lanes + [16 + lane for lane in lanes]
                order = lanes + [0] * (16 - len(lanes))
                pairs = [
                    simd.shuffle(builder, pairs[i], pairs[i + 1], order)
                    for i in range(0, len(pairs), 2)
                ]
                lanes = list(range(len(lanes)))
            return pairs[0]

        v = simd.I8X64
        return simd.I32X16(qt, v, v, v, v, v, v, v, v), codegen

    def _emit_halves(builder: Any, words: Any, shifts: list[int]) -> Any:
        words = builder.lshr(words, ir.Constant(simd.I32X16.ir, shifts * 8))
        words = builder.trunc(words, simd.I16X16.ir)
        return builder.fpext(builder.bitcast(words, simd.F16X16.ir), simd.F32X16.ir)

    @intrinsic
    def _scales(typingctx: Any, qt: Any, words: Any) -> Any:
        """The scales of 16 blocks from their first words."""
        second = 16 if reader_of(qt.value, Block32).nbytes % 4 else 0

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _emit_halves(builder, args[1], [0, second])

        return simd.F32X16(qt, simd.I32X16), codegen

    @intrinsic
    def _minima(typingctx: Any, qt: Any, words: Any) -> Any:
        """The minima of 16 blocks from their first words."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _emit_halves(builder, args[1], [16, 16])

        return simd.F32X16(qt, simd.I32X16), codegen

    @intrinsic
    def _spread(typingctx: Any, whole: Any, sixteenth: Any, pair: Any) -> Any:
        """Lane 2 p of both, four times each, then lane 2 p + 1 so; p a literal."""
        if not isinstance(pair, types.IntegerLiteral):
            return None
        p = 2 * pair.literal_value

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            order = [p] * 4 + [16 + p] * 4 + [p + 1] * 4 + [17 + p] * 4
            return simd.shuffle(builder, args[0], args[1], order)

        return simd.F32X16(simd.F32X16, simd.F32X16, pair), codegen

    @inline
    def _products(isa: Any, qt: Any, pair: Any, x: int) -> Any:
        zero = simd.splat_i32x16(0)
        return simd.to_f32x16(byte_dots.dot_u8i8(isa, zero, _nibbles(qt, pair), simd.load_i8x64(x)))


def _avx512(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    acc = simd.splat_f32x16(np.float32(0))
    least = simd.splat_f32x16(np.float32(0))
    scales, sums = x + q8_scales(k), x + q8_sums(k)
    two = 2 * nbytes(qt)
    for s in range(k // 512):
        at = w + 8 * two * s
        ahead = at + AHEAD
        a = _load_pair(qt, at)
        b = _load_pair(qt, at + two)
        c = _load_pair(qt, at + 2 * two)
        d = _load_pair(qt, at + 3 * two)
        e = _load_pair(qt, at + 4 * two)
        f = _load_pair(qt, at + 5 * two)
        g = _load_pair(qt, at + 6 * two)
        h = _load_pair(qt, at + 7 * two)
        words = _first_words(qt, a, b, c, d, e, f, g, h)
        delta = _scales(qt, words)
        m = delta * simd.splat_f32x16(np.float32(-offset(qt)))
        if minimum_at(qt) != 0:
            m = _minima(qt, words)
        least = simd.fma_f32x16(m, simd.load_f32x16(sums + 64 * s), least)
        scale = delta * simd.load_f32x16(scales + 64 * s)
        high = scale * simd.splat_f32x16(np.float32(0.0625))
        p = x + 512 * s
        acc = simd.fma_f32x16(_spread(scale, high, 0), _products(isa, qt, a, p), acc)
        simd.prefetch(ahead + 0)
        acc = simd.fma_f32x16(_spread(scale, high, 1), _products(isa, qt, b, p + 64), acc)
        simd.prefetch(ahead + 64)
        acc = simd.fma_f32x16(_spread(scale, high, 2), _products(isa, qt, c, p + 128), acc)
        acc = simd.fma_f32x16(_spread(scale, high, 3), _products(isa, qt, d, p + 192), acc)
        simd.prefetch(ahead + 128)
        acc = simd.fma_f32x16(_spread(scale, high, 4), _products(isa, qt, e, p + 256), acc)
        simd.prefetch(ahead + 192)
        acc = simd.fma_f32x16(_spread(scale, high, 5), _products(isa, qt, f, p + 320), acc)
        acc = simd.fma_f32x16(_spread(scale, high, 6), _products(isa, qt, g, p + 384), acc)
        simd.prefetch(ahead + 256)
        acc = simd.fma_f32x16(_spread(scale, high, 7), _products(isa, qt, h, p + 448), acc)
    return dot_tail(isa, qt, w, x, k, acc, least, AHEAD)


def _narrower(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    return dot_block32(isa, qt, w, x, k)


@per_level(_narrower, avx2=dot_nibbles_avx2, avx512vnni=_avx512, amx=_avx512)
def dot_nibbles(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py; of types whose codes are plain nibbles (Block32's ``nibbles_at``)."""
    return dot_block32(isa, qt, w, x, k)
