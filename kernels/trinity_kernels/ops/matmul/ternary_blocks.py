"""Ternary weights with a scale for 256 codes: exact sums of blocks, added in float32.

Numerics, on every level and for any number of tokens: block b is added as ``fma(d, float32(sum of
value * a), y)`` to accumulator b mod 4; the result is (0 + 2) + (1 + 3) of the accumulators. Types
with one scale for the tensor (I2_S) have no blocks.
"""

from __future__ import annotations

from typing import Any

from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.memory import get_f32
from trinity_kernels.ops.matmul import strided
from trinity_kernels.ops.matmul.readers import nbytes, scale_at


def _sums_of_4(builder: Any, totals: Any) -> Any:
    """<4 x i32>: the sums of four <16 x i32>."""
    low = [i // 2 % 2 + i // 4 * 4 + i % 2 * 16 for i in range(16)]
    high = [lane + 2 for lane in low]
    pairs = [
        builder.add(simd.shuffle(builder, a, b, low), simd.shuffle(builder, a, b, high))
        for a, b in (totals[:2], totals[2:])
    ]
    low = [i // 4 * 4 + i % 2 + i // 2 % 2 * 16 for i in range(16)]
    high = [lane + 2 for lane in low]
    ab, cd = pairs
    whole = builder.add(simd.shuffle(builder, ab, cd, low), simd.shuffle(builder, ab, cd, high))
    for lanes in (8, 4):
        upper = simd.shuffle(builder, whole, whole, list(range(lanes, 2 * lanes)))
        whole = builder.add(simd.shuffle(builder, whole, whole, list(range(lanes))), upper)
    return whole


@instructions("f32x4")
def no_blocks(builder: Any) -> Any:
    """Four zero accumulators."""
    return ir.Constant(simd.F32X4.ir, None)


@instructions("f32x4", "f32x4", *["i32x16"] * 4, "intp", "intp", "intp")
def add_4_blocks(
    builder: Any, y: Any, a: Any, b: Any, c: Any, d: Any, sums: Any, scales: Any, stride: Any
) -> Any:
    """Add four blocks to ``y``; a to d are the lanes of their products, of codes = values + 1.

    ``sums``: the int32 negated sums of their activations; ``scales``: their first scale.
    """
    below = builder.load(simd.pointer(builder, sums, simd.I32X4.ir), align=1)
    exact = builder.add(_sums_of_4(builder, [a, b, c, d]), below)
    halves = ir.Constant(ir.VectorType(simd.F16, 4), ir.Undefined)
    for i in range(4):
        at = builder.add(scales, builder.mul(stride, simd.I64(i)))
        half = builder.load(simd.pointer(builder, at, simd.F16), align=1)
        halves = builder.insert_element(halves, half, simd.I32(i))
    factors = [
        builder.fpext(halves, simd.F32X4.ir), builder.sitofp(exact, simd.F32X4.ir), y
    ]  # fmt: skip
    return simd.call_named(builder, "llvm.fma.v4f32", simd.F32X4.ir, factors)


@instructions("f32x4", "f32x4", "literal", "i32x16", "intp", "intp")
def add_1_block(builder: Any, y: Any, lane: Any, a: Any, sums: Any, scale: Any) -> Any:
    """As add_4_blocks, for one block and accumulator ``lane``, a literal."""
    at = simd.I32(lane)
    below = builder.load(simd.pointer(builder, sums, simd.I32), align=1)
    exact = builder.add(simd.fold(builder, a, 16, "add"), below)
    half = builder.load(simd.pointer(builder, scale, simd.F16), align=1)
    before = builder.extract_element(y, at)
    factors = [builder.fpext(half, simd.F32), builder.sitofp(exact, simd.F32), before]
    after = simd.call_named(builder, "llvm.fma.f32", simd.F32, factors)
    return builder.insert_element(y, after, at)


@instructions("float32", "f32x4")
def end_blocks(builder: Any, y: Any) -> Any:
    """The sum of the accumulators."""
    return simd.fold(builder, y, 4, "fadd")


@inline
def load_scales(qt: Any, w: int, stride: int, blocks: int, to: int) -> None:
    """Write the scales of 16 rows at ``w``: 16 float32 for each block."""
    first = w + scale_at(qt)
    for b in range(blocks):
        simd.store_f32x16(to + 64 * b, strided.f16x16(first + b * nbytes(qt), stride))


@inline
def add_tile(exact: int, scales: int, to: int) -> None:
    """Add a block's tile of sums, int32 [16 rows][16 tokens], to float32 at ``to``."""
    for row in range(16):
        d = simd.splat_f32x16(get_f32(scales + 4 * row))
        total = simd.to_f32x16(simd.load_i32x16(exact + 64 * row))
        y = simd.load_f32x16(to + 64 * row)
        simd.store_f32x16(to + 64 * row, simd.fma_f32x16(d, total, y))


@inline
def begin_tiles(to: int, count: int) -> None:
    """Set ``count`` tiles of each of the four accumulators, 4096 bytes apart, to zero."""
    for i in range(4):
        for line in range(0, 1024 * count, 64):
            simd.store_f32x16(to + 4096 * i + line, simd.splat_f32x16(0))


@inline
def end_tiles(to: int, count: int) -> None:
    """Add the accumulators; the first gets the sum."""
    for at in range(to, to + 1024 * count, 64):
        even = simd.load_f32x16(at) + simd.load_f32x16(at + 8192)
        odd = simd.load_f32x16(at + 4096) + simd.load_f32x16(at + 12288)
        simd.store_f32x16(at, even + odd)
