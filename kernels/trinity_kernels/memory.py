"""Reads and writes of scalars at addresses, by which kernels access plan records and buffers.

Without compilation they use ctypes, so that portable kernels also run as plain Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from trinity_kernels._jit import intrinsic
from trinity_kernels.deferred import ir
from trinity_kernels.instructions import instructions
from trinity_kernels.isa import is_compiled_copy

_KINDS: dict[str, type[np.generic]] = {
    "i8": np.int8, "u8": np.uint8, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
    "i64": np.int64, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def _element(kind: str) -> Any:
    """LLVM's type of a scalar."""
    bits = int(kind[1:])
    if kind[0] == "f":
        return {16: ir.HalfType, 32: ir.FloatType, 64: ir.DoubleType}[bits]()
    return ir.IntType(bits)


def _at(builder: Any, address: Any, kind: str) -> Any:
    return builder.inttoptr(address, _element(kind).as_pointer())


def _load(kind: str) -> Callable[..., Any]:
    dtype = np.dtype(_KINDS[kind])

    def python(address: int) -> Any:
        return np.frombuffer(ctypes.string_at(int(address), dtype.itemsize), dtype)[0]

    @instructions(dtype.name, "intp", python=python)
    def load(builder: Any, address: Any) -> Any:
        """The scalar at ``address``."""
        return builder.load(_at(builder, address, kind), align=1)

    return load


def _store(kind: str) -> Callable[..., Any]:
    dtype = np.dtype(_KINDS[kind])

    def python(address: int, value: Any) -> None:
        ctypes.memmove(int(address), np.asarray(value).astype(dtype).tobytes(), dtype.itemsize)

    @instructions("void", "intp", dtype.name, python=python)
    def store(builder: Any, address: Any, value: Any) -> Any:
        """Write the scalar to ``address``."""
        builder.store(value, _at(builder, address, kind), align=1)

    return store


get_i8, get_u8, get_u16, get_i32 = _load("i8"), _load("u8"), _load("u16"), _load("i32")
get_u32, get_i64, get_f32, get_f64 = _load("u32"), _load("i64"), _load("f32"), _load("f64")
set_i8, set_i32, set_i64 = _store("i8"), _store("i32"), _store("i64")
set_f32, set_f64 = _store("f32"), _store("f64")


def _slots_of(record: int, slots: tuple[int, ...]) -> tuple[int, ...]:
    """The integers in these slots of a plan record."""
    return tuple(int(get_i64(record + 8 * slot)) for slot in slots)


def _load_slots(typingctx: Any, record: Any, slots: Any) -> Any:
    from numba.core import types

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        word = ir.IntType(64)
        numbers = [builder.extract_value(args[1], i) for i in range(len(slots))]
        places = [builder.add(args[0], builder.mul(number, word(8))) for number in numbers]
        values = [builder.load(_at(builder, place, "i64"), align=1) for place in places]
        return context.make_tuple(builder, sig.return_type, values)

    several = types.UniTuple(types.int64, len(slots))  # type: ignore[attr-defined]
    return several(types.intp, slots), codegen


slots_of = intrinsic(_load_slots) if is_compiled_copy() else _slots_of


def _get_f16(address: int) -> Any:
    return np.float32(np.frombuffer(ctypes.string_at(int(address), 2), np.float16)[0])


def _set_f16(address: int, value: Any) -> None:
    ctypes.memmove(int(address), np.float32(value).astype(np.float16).tobytes(), 2)


def _get_bf16(address: int) -> Any:
    return np.frombuffer(b"\0\0" + ctypes.string_at(int(address), 2), np.float32)[0]


def _get_e8m0(address: int) -> Any:
    return np.float32(2.0 ** (int(get_u8(address)) - 128))


def _fma_f32(a: Any, b: Any, c: Any) -> Any:
    # The product is exact in float64. The sum is rounded twice: the last bit may differ.
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


@instructions("float32", "intp", python=_get_f16)
def get_f16(builder: Any, address: Any) -> Any:
    """The float16 at ``address`` as float32."""
    return builder.fpext(builder.load(_at(builder, address, "f16"), align=1), ir.FloatType())


@instructions("void", "intp", "float32", python=_set_f16)
def set_f16(builder: Any, address: Any, value: Any) -> Any:
    """``value`` rounded to float16."""
    half = builder.fptrunc(value, ir.HalfType())
    builder.store(half, _at(builder, address, "f16"), align=1)


@instructions("float32", "intp", python=_get_bf16)
def get_bf16(builder: Any, address: Any) -> Any:
    """The bfloat16 at ``address`` as float32."""
    word = ir.IntType(32)
    half = builder.load(_at(builder, address, "u16"), align=1)
    return builder.bitcast(builder.shl(builder.zext(half, word), word(16)), ir.FloatType())


@instructions("float32", "intp", python=_get_e8m0)
def get_e8m0(builder: Any, address: Any) -> Any:
    """2**(e - 128) for the byte e at ``address``; subnormal for 0 and 1."""
    word = ir.IntType(32)
    e = builder.zext(builder.load(_at(builder, address, "u8"), align=1), word)
    normal = builder.shl(builder.sub(e, word(1)), word(23))
    small = builder.shl(word(0x00200000), builder.and_(e, word(1)))
    bits = builder.select(builder.icmp_unsigned("<", e, word(2)), small, normal)
    return builder.bitcast(bits, ir.FloatType())


@instructions("float32", "float32", "float32", "float32", python=_fma_f32)
def fma_f32(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return builder.fma(a, b, c)
