"""Dot products of 4-bit codes on levels with registers of 64 bytes: a pair of blocks per load.

One byte shuffle spreads a pair's bytes to low nibbles and high nibbles of each block. High nibbles
stay in the high halves of their bytes, so their sums are 16 times too large, which the scale of
their lanes corrects exactly. Shuffles of words give the scales and minima of 16 blocks from the
same loads.
Numerics: the bits of dot_block32.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.activations import q8_scales, q8_sums
from trinity_kernels.ops.matmul.dot_block32 import dot_block32, dot_tail
from trinity_kernels.ops.matmul.dot_nibbles_avx2 import dot_nibbles_avx2
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import minimum_at, nbytes, offset, reader_of
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.tags import per_level


@instructions("i8x64", "tag", "intp")
def _load_pair(builder: Any, qt: Any, address: Any) -> Any:
    """Load two blocks at ``address``, without reading beyond them."""
    nbytes = 2 * reader_of(qt.value, Block32).nbytes
    vec = simd.I8X64.ir
    mask = ir.Constant(ir.VectorType(ir.IntType(1), 64), [1] * nbytes + [0] * (64 - nbytes))
    at = simd.pointer(builder, address, vec)
    operands = [at, simd.I32(1), mask, ir.Constant(vec, None)]
    return simd.call_named(builder, "llvm.masked.load.v64i8.p0", vec, operands)


@instructions("i8x64", "tag", "i8x64")
def _nibbles(builder: Any, qt: Any, pair: Any) -> Any:
    """Each block's codes as code (elements 0 to 15) and as 16 * code (16 to 31)."""
    reader = reader_of(qt.value, Block32)
    first = reader.nibbles_at
    one = list(range(first, first + 16))
    two = [reader.nbytes + i for i in one]
    spread = simd.shuffle(builder, pair, pair, one + one + two + two)
    mask = ([15] * 16 + [240] * 16) * 2
    return builder.and_(spread, ir.Constant(simd.I8X64.ir, mask))


@instructions("i32x16", "tag", *["i8x64"] * 8)
def _first_words(
    builder: Any, qt: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any
) -> Any:
    """The first words of the blocks of eight pairs, in order."""
    second = reader_of(qt.value, Block32).nbytes // 4  # an odd half of it of 18 bytes
    pairs = [builder.bitcast(x, simd.I32X16.ir) for x in [a, b, c, d, e, f, g, h]]
    lanes = [0, second]
    while len(pairs) > 1:
        lanes = lanes + [16 + lane for lane in lanes]
        order = lanes + [0] * (16 - len(lanes))
        pairs = [
            simd.shuffle(builder, pairs[i], pairs[i + 1], order) for i in range(0, len(pairs), 2)
        ]
        lanes = list(range(len(lanes)))
    return pairs[0]


def _emit_halves(builder: Any, words: Any, shifts: list[int]) -> Any:
    words = builder.lshr(words, ir.Constant(simd.I32X16.ir, shifts * 8))
    words = builder.trunc(words, simd.I16X16.ir)
    return builder.fpext(builder.bitcast(words, simd.F16X16.ir), simd.F32X16.ir)


@instructions("f32x16", "tag", "i32x16")
def _scales(builder: Any, qt: Any, words: Any) -> Any:
    """The scales of 16 blocks from their first words."""
    second = 16 if reader_of(qt.value, Block32).nbytes % 4 else 0
    return _emit_halves(builder, words, [0, second])


@instructions("f32x16", "tag", "i32x16")
def _minima(builder: Any, qt: Any, words: Any) -> Any:
    """The minima of 16 blocks from their first words."""
    return _emit_halves(builder, words, [16, 16])


@instructions("f32x16", "f32x16", "f32x16", "literal")
def _spread(builder: Any, whole: Any, sixteenth: Any, pair: Any) -> Any:
    """Lane 2 p of both vectors, four times each, then lane 2 p + 1; p is a literal."""
    p = 2 * pair
    order = [p] * 4 + [16 + p] * 4 + [p + 1] * 4 + [17 + p] * 4
    return simd.shuffle(builder, whole, sixteenth, order)


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
    """See dot.py; for types whose codes are nibbles (``nibbles_at``)."""
    return dot_block32(isa, qt, w, x, k)
