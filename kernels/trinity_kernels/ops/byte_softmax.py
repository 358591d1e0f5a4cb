"""Softmax to bytes: each block of positions has codes relative to its largest, and a weight.

2**x = 2**floor(x) p(x - floor(x)), with p of degree 3 and a relative error of 8e-5 at most.
Rounding to a code has an error of up to half of 1/255 of the largest anyway.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import get_f32, get_i32, set_f32, set_i8
from trinity_kernels.ops.exponential import exp_f32
from trinity_kernels.tags import per_level, shared

BLOCK = 64  # positions with one largest probability
_PARTS = 255  # the code of the largest
_LOG2_PARTS = np.float32(np.log2(_PARTS))
_LOG2E = np.float32(1.4426950408889634)
_POWERS = (0.99992522, 0.69583353, 0.22606718, 0.07802451)
_TINY = np.float32(1e-30)


@shared
def weights_bytes(blocks: int) -> int:
    """Bytes of a row's weights: a float32 for each block of positions, in whole vectors."""
    return (blocks + 15) // 16 * 64


def softmax_block(
    isa: Any, scores: int, scales: int, factor: Any, count: int, p: int, top: int, found: int
) -> None:
    """Write a block's probabilities to ``p`` as bytes, from int32 scores of ``count`` positions.

    A score is multiplied by ``factor`` and its position's float32 at ``scales``. The largest goes
    to ``top``, and 16 float32 whose sum is that of the probabilities, relative to it, to ``found``.
    """
    largest = np.float32(-np.inf)
    for j in range(min(BLOCK, count)):
        s = np.float32(np.float32(get_i32(scores + 4 * j)) * get_f32(scales + 4 * j))
        set_f32(scores + 4 * j, s)
        largest = max(largest, s)
    set_f32(top, largest)
    total = np.float32(0)
    for j in range(BLOCK):
        code = np.int32(0)
        if j < count:
            e = np.float32(get_f32(scores + 4 * j) - largest)
            e = np.float32(exp_f32(np.float32(e * factor)) * np.float32(_PARTS))
            total = np.float32(total + e)
            # NaN shows in the sum.
            code = np.int32(np.rint(e)) if e == e else np.int32(0)
        set_i8(p + j, np.int8(code))
    for i in range(16):
        set_f32(found + 4 * i, total if i == 0 else np.float32(0))


def whole_sum(isa: Any, tops: int, found: int, factor: Any, blocks: int) -> Any:
    """Turn the largest scores of a row's blocks into weights; return the sum of probabilities."""
    m = np.float32(-np.inf)
    for block in range(blocks):
        m = max(m, get_f32(tops + 4 * block))
    total = np.float32(0)
    for block in range(blocks):
        weight = exp_f32(np.float32(np.float32(get_f32(tops + 4 * block) - m) * factor))
        set_f32(tops + 4 * block, weight)
        for i in range(16):
            total = np.float32(total + np.float32(weight * get_f32(found + 64 * block + 4 * i)))
    return total


_WIDE = frozenset({"avx512", "avx512vnni", "amx"})


@instructions("f32x16", "tag", "f32x16")
def power_of_2(builder: Any, isa: Any, x: Any) -> Any:
    """2**x of 16 float32 up to 127; about 0 for very low x, NaN for NaN."""
    level = isa.value
    kind = simd.F32X16.ir

    def name(what: str) -> str:
        return f"llvm.x86.avx512.mask.{what}.ps.512"

    whole, default = ir.Constant(simd.I16, -1), simd.I32(4)  # of mask and rounding
    if level in _WIDE:
        floor = [x, simd.I32(1), x, whole, default]
        r = simd.call_named(builder, name("reduce"), kind, floor)
    else:
        least = ir.Constant(kind, [-126.0] * 16)
        x = builder.select(builder.fcmp_ordered("<", x, least), least, x)
        n = simd.call_named(builder, "llvm.floor.v16f32", kind, [x])
        r = builder.fsub(x, n)
    p = ir.Constant(kind, [_POWERS[3]] * 16)
    for power in _POWERS[2::-1]:
        terms = [p, r, ir.Constant(kind, [power] * 16)]
        p = simd.call_named(builder, "llvm.fma.v16f32", kind, terms)
    if level in _WIDE:
        return simd.call_named(builder, name("scalef"), kind, [p, x, p, whole, default])
    shifted = builder.fptosi(n, simd.I32X16.ir)
    shifted = builder.shl(shifted, ir.Constant(simd.I32X16.ir, [23] * 16))
    bits = builder.add(builder.bitcast(p, simd.I32X16.ir), shifted)
    return builder.bitcast(bits, kind)


@instructions("void", "tag", "intp", *["i32x16"] * 4)
def store_bytes(builder: Any, isa: Any, to: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Write 64 int32 from 0 to 255 as bytes."""
    level = isa.value
    parts = [a, b, c, d]
    if level in _WIDE:
        words = ir.VectorType(simd.I16, 32)
        pairs = [
            simd.call_named(builder, "llvm.x86.avx512.packusdw.512", words, parts[i : i + 2])
            for i in (0, 2)
        ]
        name = "llvm.x86.avx512.packuswb.512"
        mixed = simd.call_named(builder, name, simd.I8X64.ir, pairs)
        # Each 128 bits have 4 bytes of each of the four.
        mixed = builder.bitcast(mixed, simd.I32X16.ir)
        order = [4 * lane + part for part in range(4) for lane in range(4)]
        found = simd.shuffle(builder, mixed, mixed, order)
    else:
        pairs = [simd.shuffle(builder, parts[i], parts[i + 1], list(range(32))) for i in (0, 2)]
        found = simd.shuffle(builder, pairs[0], pairs[1], list(range(64)))
        found = builder.trunc(found, simd.I8X64.ir)
    place = simd.pointer(builder, to, found.type)
    builder.store(found, place, align=1)


@inline
def _factors(factor: Any) -> Any:
    # A factor of 0 would let through what is masked; one that is no number stays so.
    return simd.splat_f32x16(_TINY if factor < _TINY else np.float32(factor * _LOG2E))


def _vector_softmax_block(
    isa: Any, scores: int, scales: int, factor: Any, count: int, p: int, top: int, found: int
) -> None:
    factors = _factors(factor)
    s0 = simd.to_f32x16(simd.load_i32x16(scores)) * simd.load_f32x16(scales)
    s1 = simd.to_f32x16(simd.load_i32x16(scores + 64)) * simd.load_f32x16(scales + 64)
    s2 = simd.to_f32x16(simd.load_i32x16(scores + 128)) * simd.load_f32x16(scales + 128)
    s3 = simd.to_f32x16(simd.load_i32x16(scores + 192)) * simd.load_f32x16(scales + 192)
    if count < BLOCK:
        masked, lanes = simd.splat_f32x16(np.float32(-3e38)), simd.lane_index()
        s0 = simd.select_below(lanes, count, s0, masked)
        s1 = simd.select_below(lanes, count - 16, s1, masked)
        s2 = simd.select_below(lanes, count - 32, s2, masked)
        s3 = simd.select_below(lanes, count - 48, s3, masked)
    pairs = simd.max_f32x16(simd.max_f32x16(s0, s1), simd.max_f32x16(s2, s3))
    largest = simd.max_lane_f32x16(pairs)
    set_f32(top, largest)
    shift = simd.splat_f32x16(_LOG2_PARTS) - simd.splat_f32x16(largest) * factors
    e0 = power_of_2(isa, simd.fma_f32x16(s0, factors, shift))
    e1 = power_of_2(isa, simd.fma_f32x16(s1, factors, shift))
    e2 = power_of_2(isa, simd.fma_f32x16(s2, factors, shift))
    e3 = power_of_2(isa, simd.fma_f32x16(s3, factors, shift))
    simd.store_f32x16(found, (e0 + e1) + (e2 + e3))
    i0, i1 = simd.round_i32x16(e0), simd.round_i32x16(e1)
    i2, i3 = simd.round_i32x16(e2), simd.round_i32x16(e3)
    store_bytes(isa, p, i0, i1, i2, i3)


per_level(_vector_softmax_block)(softmax_block)


def _vector_whole_sum(isa: Any, tops: int, found: int, factor: Any, blocks: int) -> Any:
    factors = _factors(factor)
    lowest = simd.splat_f32x16(np.float32(-3e38))
    largest = lowest
    for block in range(0, blocks, 16):
        top = simd.load_f32x16(tops + 4 * block)
        top = simd.select_below(simd.lane_index(), blocks - block, top, lowest)
        largest = simd.max_f32x16(largest, top)
    m = simd.splat_f32x16(simd.max_lane_f32x16(largest))
    for block in range(0, blocks, 16):
        weight = power_of_2(isa, (simd.load_f32x16(tops + 4 * block) - m) * factors)
        simd.store_f32x16(tops + 4 * block, weight)
    total = simd.splat_f32x16(np.float32(0))
    for block in range(blocks):
        weight = simd.splat_f32x16(get_f32(tops + 4 * block))
        total = simd.fma_f32x16(simd.load_f32x16(found + 64 * block), weight, total)
    return simd.sum_f32x16(total)


per_level(_vector_whole_sum)(whole_sum)
