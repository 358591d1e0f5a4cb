"""Dot products of 4-bit codes on levels with registers of 32 bytes: a block per load.

A block's 16 bytes are loaded into both halves of a register, and the upper half is shifted. The
first bytes of eight blocks are interleaved in one register; their scales, times those of the
activations, are kept as four in each half, so one shuffle within halves spreads each.
Numerics: the bits of dot_block32.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.activations import q8_scales, q8_sums
from trinity_kernels.ops.matmul.dot_block32 import dot_tail
from trinity_kernels.ops.matmul.prefetch import AHEAD
from trinity_kernels.ops.matmul.readers import (
    minima_of_16,
    minimum_at,
    nbytes,
    offset,
    reader_of,
    scales_of_16,
)
from trinity_kernels.quants.block32 import Block32


def _load(builder: Any, address: Any, element: Any, lanes: int) -> Any:
    vec = ir.VectorType(element, lanes)
    return builder.load(simd.pointer(builder, address, vec), align=1)


def _firsts(builder: Any, address: Any, nbytes: int, element: Any, count: int) -> Any:
    """The first bytes of ``count`` blocks; reads 16 bytes of each."""
    lanes = 128 // element.width
    parts = [
        _load(builder, builder.add(address, simd.I64(i * nbytes)), element, lanes)
        for i in range(count)
    ]
    width = 1
    while len(parts) > 1:
        lanes = parts[0].type.count
        order = [
            start + i + other
            for start in range(0, lanes if 2 * width > lanes else lanes // 2, width)
            for other in (0, lanes)
            for i in range(width)
        ]
        parts = [
            simd.shuffle(builder, a, b, order) for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        width *= 2
    return simd.shuffle(builder, parts[0], parts[0], list(range(count)))


def _spread(builder: Any, scales: Any, first: int) -> list[Any]:
    """Four lanes from ``first`` on, 8 times each."""
    four = list(range(first, first + 4))
    both = simd.shuffle(builder, scales, scales, four + four)
    # The empty assembly keeps LLVM from spreading each across halves, which is slower.
    both = builder.asm(ir.FunctionType(simd.F32X8.ir, [simd.F32X8.ir]), "", "=x,0", [both], False)
    return [simd.shuffle(builder, both, both, [i] * 4 + [4 + i] * 4) for i in range(4)]


def _products(builder: Any, packed: Any, signed: Any) -> Any:
    """Sums of 4 neighbouring products of a block, as float32."""
    twice = simd.shuffle(builder, packed, packed, [*range(16), *range(16)])
    words = builder.bitcast(twice, simd.I32X8.ir)
    words = builder.lshr(words, ir.Constant(simd.I32X8.ir, [0] * 4 + [4] * 4))
    codes = builder.and_(
        builder.bitcast(words, simd.I8X32.ir), ir.Constant(simd.I8X32.ir, [15] * 32)
    )
    pairs = simd.call_named(builder, "llvm.x86.avx2.pmadd.ub.sw", simd.I16X16.ir, [codes, signed])
    ones = ir.Constant(simd.I16X16.ir, [1] * 16)
    fours = simd.call_named(builder, "llvm.x86.avx2.pmadd.wd", simd.I32X8.ir, [pairs, ones])
    return builder.sitofp(fours, simd.F32X8.ir)


def add_blocks(
    builder: Any, reader: Block32, at: Any, x: Any, scales: Any, sums: list[Any]
) -> list[Any]:
    """Add the products of as many blocks as scales to the sums of even and odd blocks."""
    found = list(sums)
    for block in range(scales.type.count):
        if block % 4 == 0:
            scale = _spread(builder, scales, block)
        start = block * reader.nbytes
        codes = builder.add(at, simd.I64(start + reader.nibbles_at))
        lanes = _products(
            builder,
            _load(builder, codes, simd.I8, 16),
            _load(builder, builder.add(x, simd.I64(32 * block)), simd.I8, 32),
        )
        found[block % 2] = fma(builder, scale[block % 4], lanes, found[block % 2])
    return found


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of vectors of float32, rounded once."""
    name = f"llvm.fma.v{a.type.count}f32"
    return simd.call_named(builder, name, a.type, [a, b, c])


def scales_and_minima(builder: Any, reader: Block32, at: Any, count: int) -> tuple[Any, Any]:
    """The scales and minima at the start of ``count`` blocks, float32."""
    kind = ir.VectorType(ir.FloatType(), count)

    def numbers(halves: Any) -> Any:
        return builder.fpext(builder.bitcast(halves, ir.VectorType(ir.HalfType(), count)), kind)

    if not reader.minimum_at:
        d = numbers(_firsts(builder, at, reader.nbytes, simd.I16, count))
        return d, builder.fmul(d, ir.Constant(kind, [-float(reader.offset)] * count))
    words = _firsts(builder, at, reader.nbytes, simd.I32, count)
    half = ir.VectorType(simd.I16, count)
    upper = builder.lshr(words, ir.Constant(words.type, [16] * count))
    return numbers(builder.trunc(words, half)), numbers(builder.trunc(upper, half))


@instructions("f32x16", "tag", "intp", "intp", "f32x16", "f32x16")
def _sixteen(builder: Any, qt: Any, at: Any, x: Any, scales: Any, acc: Any) -> Any:
    """``acc`` + the products of 16 blocks at ``at``, each times its scale."""
    reader = reader_of(qt.value, Block32)
    halves = [simd.shuffle(builder, acc, acc, list(range(i, i + 8))) for i in (0, 8)]
    halves = add_blocks(builder, reader, at, x, scales, halves)
    return simd.shuffle(builder, halves[0], halves[1], list(range(16)))


@instructions("f32x16", "tag", "intp")
def _halves(builder: Any, qt: Any, at: Any) -> Any:
    """The scales of 16 blocks without minima."""
    size = reader_of(qt.value, Block32).nbytes
    halves = _firsts(builder, at, size, simd.I16, 16)
    return builder.fpext(builder.bitcast(halves, simd.F16X16.ir), simd.F32X16.ir)


def dot_nibbles_avx2(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """See dot.py."""
    acc = simd.splat_f32x16(np.float32(0))
    least = simd.splat_f32x16(np.float32(0))
    scales, sums = x + q8_scales(k), x + q8_sums(k)
    size = nbytes(qt)
    for s in range(k // 512):
        at = w + 16 * size * s
        for line in range(0, 16 * size, 64):
            simd.prefetch(at + AHEAD + line)
        if minimum_at(qt) != 0:
            d = scales_of_16(qt, at, size)
            m = minima_of_16(qt, at, size)
        else:
            d = _halves(qt, at)
            m = d * simd.splat_f32x16(np.float32(-offset(qt)))
        least = simd.fma_f32x16(m, simd.load_f32x16(sums + 64 * s), least)
        both = d * simd.load_f32x16(scales + 64 * s)
        acc = _sixteen(qt, at, x + 512 * s, both, acc)
    return dot_tail(isa, qt, w, x, k, acc, least, AHEAD)
