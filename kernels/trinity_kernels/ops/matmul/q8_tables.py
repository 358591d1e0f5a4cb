"""The codes, scales and sums of the q8 form (activations.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import byte_dots
from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions

TINY = np.float32(1e-35)


@instructions("float32", "f32x16", "f32x16")
def largest_f32x32(builder: Any, low: Any, high: Any) -> Any:
    """The largest magnitude of 32 values; infinite or NaN if one of them is.

    Magnitudes are compared as integers, of which NaN is the largest.
    """
    mask = ir.Constant(simd.I32X16.ir, [0x7FFFFFFF] * 16)
    a, b = (builder.and_(builder.bitcast(x, simd.I32X16.ir), mask) for x in (low, high))
    lanes = 16
    while True:
        a = builder.select(builder.icmp_signed(">", a, b), a, b)
        if lanes == 1:
            break
        lanes //= 2
        b = simd.shuffle(builder, a, a, list(range(lanes, 2 * lanes)))
        a = simd.shuffle(builder, a, a, list(range(lanes)))
    return builder.bitcast(builder.extract_element(a, simd.I32(0)), simd.F32)


@inline
def load_before(x: int, i: int, k: int) -> Any:
    """16 values from value ``i`` on; zeros from ``k`` on, where memory belongs to others."""
    if i + 16 <= k:
        return simd.load_f32x16(x + 4 * i)
    return simd.load_tail_f32(x + 4 * i, k - i)


@inline
def q8_scale(v0: Any, v1: Any) -> Any:
    """A block's scale and its inverse; NaN if a value is not finite."""
    largest = largest_f32x32(v0, v1)
    d = np.float32(0)
    inverse = np.float32(0)
    if largest > TINY:
        d = np.float32(largest / np.float32(127))
        inverse = np.float32(np.float32(127) / largest)
    return np.float32(d + np.float32(largest * np.float32(0))), inverse


@inline
def q8_codes(v: Any, inverse: Any) -> Any:
    """16 codes as int8."""
    scaled = simd.rint_f32x16(v * simd.splat_f32x16(inverse))
    scaled = simd.min_f32x16(simd.splat_f32x16(np.float32(127)), scaled)
    scaled = simd.max_f32x16(simd.splat_f32x16(np.float32(-127)), scaled)
    return simd.narrow_i8x16(simd.round_i32x16(scaled))


@instructions("void", "tag", "i8x64", "float32", "float32", *["intp"] * 5)
def store_q8_tables(
    builder: Any,
    isa: Any,
    codes: Any,
    first: Any,
    second: Any,
    scales: Any,
    sums: Any,
    groups: Any,
    halves: Any,
    negated: Any,
) -> Any:
    """Write two blocks' scales, and the sums of their codes, to the arrays at the addresses."""
    level = isa.value
    both = ir.Constant(simd.F32X2.ir, ir.Undefined)
    for lane, scale in enumerate((first, second)):
        both = builder.insert_element(both, scale, simd.I32(lane))
    _store(builder, both, scales)

    zero, ones = ir.Constant(simd.I32X16.ir, None), ir.Constant(simd.I8X64.ir, [1] * 64)
    fours = byte_dots.emit_dot_u8i8(level, builder, zero, ones, codes)
    _store(builder, builder.sub(zero, fours), groups)
    # Add the lanes of a quarter, each of which has the sum of 4 codes.
    for swapped in ([1, 0, 3, 2], [2, 3, 0, 1]):
        lanes = [4 * (lane // 4) + swapped[lane % 4] for lane in range(16)]
        fours = builder.add(fours, simd.shuffle(builder, fours, fours, lanes))
    of_16 = simd.shuffle(builder, fours, fours, [0, 4, 8, 12])
    _store(builder, builder.sub(ir.Constant(simd.I32X4.ir, None), of_16), negated)
    scaled = builder.fmul(
        builder.sitofp(of_16, simd.F32X4.ir), simd.shuffle(builder, both, both, [0, 0, 1, 1])
    )
    _store(builder, scaled, halves)
    even, odd = (simd.shuffle(builder, of_16, of_16, lanes) for lanes in ([0, 2], [1, 3]))
    whole = builder.sitofp(builder.add(even, odd), simd.F32X2.ir)
    _store(builder, builder.fmul(whole, both), sums)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, simd.pointer(builder, address, value.type), align=1)
