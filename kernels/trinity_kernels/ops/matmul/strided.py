"""Loads of 16 scales that stand apart, one of each block or row, as a vector of float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from trinity_kernels import simd
from trinity_kernels._jit import intrinsic
from trinity_kernels.quants import emit


def _all(element: Any, widen: Callable[..., Any]) -> Callable[..., Any]:
    kind = ir.VectorType(element, 16)

    @intrinsic
    def strided(typingctx: Any, address: Any, stride: Any) -> Any:
        """16 elements, ``stride`` bytes apart."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            found = ir.Constant(kind, ir.Undefined)
            for i in range(16):
                at = builder.add(args[0], builder.mul(args[1], simd.I64(i)))
                one = builder.load(simd.pointer(builder, at, element), align=1)
                found = builder.insert_element(found, one, simd.I32(i))
            return widen(builder, found)

        return simd.F32X16(types.intp, types.intp), codegen

    return strided


def _few(element: Any, widen: Callable[..., Any]) -> Callable[..., Any]:
    kind = ir.VectorType(element, 16)

    @intrinsic
    def strided(typingctx: Any, address: Any, stride: Any, count: Any) -> Any:
        """The first ``count`` of 16; reads nothing beyond. The other lanes are zeros."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            found = ir.Constant(kind, ir.Undefined)
            last = builder.sub(args[2], simd.I64(1))
            for i in range(16):
                there = builder.icmp_signed("<", simd.I64(i), args[2])
                index = builder.select(there, simd.I64(i), last)
                at = builder.add(args[0], builder.mul(args[1], index))
                one = builder.load(simd.pointer(builder, at, element), align=1)
                one = builder.select(there, one, ir.Constant(element, 0))
                found = builder.insert_element(found, one, simd.I32(i))
            return widen(builder, found)

        return simd.F32X16(types.intp, types.intp, types.intp), codegen

    return strided


def _halves(builder: Any, halves: Any) -> Any:
    return builder.fpext(halves, simd.F32X16.ir)


f16x16, few_f16 = _all(simd.F16, _halves), _few(simd.F16, _halves)
# Half of what E8M0 says, as memory.get_e8m0.
e8m0x16, few_e8m0 = _all(simd.I8, emit.powers_of_2), _few(simd.I8, emit.powers_of_2)
