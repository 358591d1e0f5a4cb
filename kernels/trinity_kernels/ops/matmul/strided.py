"""Loads of 16 scales or minima at equal distances, one of each block or row, as float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.ops.matmul.columns import emit_columns, row_addresses
from trinity_kernels.quants import emit


def _all(element: str, widen: Callable[..., Any]) -> Callable[..., Any]:
    @instructions("f32x16", "intp", "intp")
    def strided(builder: Any, address: Any, stride: Any) -> Any:
        """16 elements, ``stride`` bytes apart."""
        kind = simd.Vec(element, 16).ir
        found = ir.Constant(kind, ir.Undefined)
        for i in range(16):
            at = builder.add(address, builder.mul(stride, simd.I64(i)))
            one = builder.load(simd.pointer(builder, at, kind.element), align=1)
            found = builder.insert_element(found, one, simd.I32(i))
        return widen(builder, found)

    return strided


def _rows(widen: Callable[..., Any]) -> Callable[..., Any]:
    @instructions("f32x16", "intp", "intp")
    def strided(builder: Any, address: Any, stride: Any) -> Any:
        """The numbers in the first words of 16 blocks, of which 16 bytes can be read."""
        return widen(builder, emit_columns(builder, row_addresses(builder, address, stride))[0])

    return strided


def _few(element: str, widen: Callable[..., Any]) -> Callable[..., Any]:
    @instructions("f32x16", "intp", "intp", "intp")
    def strided(builder: Any, address: Any, stride: Any, count: Any) -> Any:
        """The first ``count`` of 16 elements; reads nothing beyond. The other lanes are zeros."""
        kind = simd.Vec(element, 16).ir
        found = ir.Constant(kind, ir.Undefined)
        last = builder.sub(count, simd.I64(1))
        for i in range(16):
            there = builder.icmp_signed("<", simd.I64(i), count)
            index = builder.select(there, simd.I64(i), last)
            at = builder.add(address, builder.mul(stride, index))
            one = builder.load(simd.pointer(builder, at, kind.element), align=1)
            one = builder.select(there, one, ir.Constant(kind.element, 0))
            found = builder.insert_element(found, one, simd.I32(i))
        return widen(builder, found)

    return strided


def _halves(builder: Any, halves: Any) -> Any:
    return builder.fpext(halves, simd.F32X16.ir)


def _words(count: int) -> Any:
    return ir.Constant(simd.I32X16.ir, [count] * 16)


def _low_halves(builder: Any, words: Any) -> Any:
    halves = builder.trunc(words, simd.I16X16.ir)
    return _halves(builder, builder.bitcast(halves, simd.F16X16.ir))


def _high_halves(builder: Any, words: Any) -> Any:
    return _low_halves(builder, builder.lshr(words, _words(16)))


def _low_bfloats(builder: Any, words: Any) -> Any:
    return builder.bitcast(builder.shl(words, _words(16)), simd.F32X16.ir)


def _high_bfloats(builder: Any, words: Any) -> Any:
    return builder.bitcast(builder.and_(words, _words(-65536)), simd.F32X16.ir)


def _floats(builder: Any, words: Any) -> Any:
    return builder.bitcast(words, simd.F32X16.ir)


def _powers_of_2(builder: Any, words: Any) -> Any:
    return emit.powers_of_2(builder, builder.trunc(words, ir.VectorType(simd.I8, 16)))


def _both(element: str, widen: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return _all(element, widen), _few(element, widen)


# By the type of scales (OneScale): the functions that load 16, and fewer.
LOADS = {
    "f16": _both("f16", _halves),
    "f32": _both("f32", lambda builder, floats: floats),
    # Half of the E8M0 value, as memory.get_e8m0.
    "e8m0": _both("i8", lambda builder, e: emit.powers_of_2(builder, e)),
}
f16x16 = LOADS["f16"][0]
# A scale and the minimum after it are loaded as one word: the compiler merges the loads of both.
LOADS_OF_TWO = {
    "f16": (_both("i32", _low_halves), _both("i32", _high_halves)),
    "bf16": (_both("i32", _low_bfloats), _both("i32", _high_bfloats)),
}
# As LOADS, for blocks of 16 rows: a vector of each block is loaded, which is faster at a distance
# that the compiler does not know. The second: minima that follow their scale in its word.
ROW_LOADS = {
    "f16": _rows(_low_halves),
    "bf16": _rows(_low_bfloats),
    "f32": _rows(_floats),
    "e8m0": _rows(_powers_of_2),
}
SECOND_ROW_LOADS = {"f16": _rows(_high_halves), "bf16": _rows(_high_bfloats)}
