"""What stands beside the codes of the q8 form (activations.py), of two blocks at a time."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from trinity_kernels import byte_dots, simd
from trinity_kernels._jit import intrinsic
from trinity_kernels.simd import F32, F32X16, I8X64, I32, I32X16

_I32X4, _F32X4, _F32X2 = ir.VectorType(I32, 4), ir.VectorType(F32, 4), ir.VectorType(F32, 2)


@intrinsic
def largest_f32x32(typingctx: Any, low: Any, high: Any) -> Any:
    """The largest magnitude of 32 values; infinite or NaN where one of them is.

    Magnitudes are compared as integers, among which NaN is the largest.
    """

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        mask = ir.Constant(I32X16.ir, [0x7FFFFFFF] * 16)
        a, b = (builder.and_(builder.bitcast(x, I32X16.ir), mask) for x in args)
        lanes = 16
        while True:
            a = builder.select(builder.icmp_signed(">", a, b), a, b)
            if lanes == 1:
                break
            lanes //= 2
            b = simd.shuffle(builder, a, a, list(range(lanes, 2 * lanes)))
            a = simd.shuffle(builder, a, a, list(range(lanes)))
        return builder.bitcast(builder.extract_element(a, I32(0)), F32)

    return types.float32(F32X16, F32X16), codegen


@intrinsic
def store_q8_tables(
    typingctx: Any, isa: Any, codes: Any, first: Any, second: Any, scales: Any, sums: Any,
    groups: Any, halves: Any, negated: Any,
) -> Any:  # fmt: skip
    """Two blocks' scales ``first`` and ``second``, and their codes' sums, to what lies at each."""
    level = isa.value

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, codes, first, second, scales, sums, groups, halves, negated = args
        both = ir.Constant(_F32X2, ir.Undefined)
        for lane, scale in enumerate((first, second)):
            both = builder.insert_element(both, scale, I32(lane))
        _store(builder, both, scales)

        zero, ones = ir.Constant(I32X16.ir, None), ir.Constant(I8X64.ir, [1] * 64)
        fours = byte_dots.emit_dot_u8i8(level, builder, zero, ones, codes)
        _store(builder, builder.sub(zero, fours), groups)
        # Lanes of a quarter, one for each 4 codes, are added to each other.
        for swapped in ([1, 0, 3, 2], [2, 3, 0, 1]):
            lanes = [4 * (lane // 4) + swapped[lane % 4] for lane in range(16)]
            fours = builder.add(fours, simd.shuffle(builder, fours, fours, lanes))
        of_16 = simd.shuffle(builder, fours, fours, [0, 4, 8, 12])
        _store(builder, builder.sub(ir.Constant(_I32X4, None), of_16), negated)
        scaled = builder.fmul(
            builder.sitofp(of_16, _F32X4), simd.shuffle(builder, both, both, [0, 0, 1, 1])
        )
        _store(builder, scaled, halves)
        even, odd = (simd.shuffle(builder, of_16, of_16, lanes) for lanes in ([0, 2], [1, 3]))
        whole = builder.sitofp(builder.add(even, odd), _F32X2)
        _store(builder, builder.fmul(whole, both), sums)
        return context.get_dummy_value()

    return types.void(isa, I8X64, types.float32, types.float32, *[types.intp] * 5), codegen


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, simd.pointer(builder, address, value.type), align=1)
