"""Scalars at raw addresses: plan records and buffers are reached through them.

With NUMBA_DISABLE_JIT they are plain Python over ctypes, so the portable kernels run uncompiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from trinity_kernels._jit import intrinsic
from trinity_kernels.isa import jit_disabled

if not jit_disabled():
    from llvmlite import ir
    from numba.core import types

    _KINDS: dict[str, tuple[Any, Any]] = {
        "i8": (ir.IntType(8), types.int8),
        "u8": (ir.IntType(8), types.uint8),
        "u16": (ir.IntType(16), types.uint16),
        "i32": (ir.IntType(32), types.int32),
        "u32": (ir.IntType(32), types.uint32),
        "i64": (ir.IntType(64), types.int64),
        "f32": (ir.FloatType(), types.float32),
        "f64": (ir.DoubleType(), types.float64),
    }
_DTYPES: dict[str, Any] = {
    "i8": np.int8, "u8": np.uint8, "u16": np.uint16, "i32": np.int32, "u32": np.uint32,
    "i64": np.int64, "f32": np.float32, "f64": np.float64,
}  # fmt: skip


def _load(kind: str) -> Callable[..., Any]:
    if jit_disabled():
        dtype = _DTYPES[kind]

        def load_python(address: int) -> Any:
            return np.frombuffer(ctypes.string_at(int(address), np.dtype(dtype).itemsize), dtype)[0]

        return load_python

    element, numba_type = _KINDS[kind]

    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        """The scalar at ``address``."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], element.as_pointer()), align=1)

        return numba_type(types.intp), codegen

    return load


def _store(kind: str) -> Callable[..., Any]:
    if jit_disabled():
        dtype = _DTYPES[kind]

        def store_python(address: int, value: Any) -> None:
            ctypes.memmove(
                int(address), np.asarray(value).astype(dtype).tobytes(), np.dtype(dtype).itemsize
            )

        return store_python

    element, numba_type = _KINDS[kind]

    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        """Write the scalar to ``address``."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            builder.store(args[1], builder.inttoptr(args[0], element.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.intp, numba_type), codegen

    return store


get_i8, get_u8, get_u16, get_i32 = _load("i8"), _load("u8"), _load("u16"), _load("i32")
get_u32, get_i64, get_f32, get_f64 = _load("u32"), _load("i64"), _load("f32"), _load("f64")
set_i8, set_u8, set_u16, set_i32 = _store("i8"), _store("u8"), _store("u16"), _store("i32")
set_i64, set_f32, set_f64 = _store("i64"), _store("f32"), _store("f64")


def _get_f16(address: int) -> Any:
    return np.float32(np.frombuffer(ctypes.string_at(int(address), 2), np.float16)[0])


def _set_f16(address: int, value: Any) -> None:
    ctypes.memmove(int(address), np.float32(value).astype(np.float16).tobytes(), 2)


def _get_bf16(address: int) -> Any:
    return np.frombuffer(b"\0\0" + ctypes.string_at(int(address), 2), np.float32)[0]


def _get_e8m0(address: int) -> Any:
    return np.float32(2.0 ** (int(get_u8(address)) - 128))


def _fma_f32(a: Any, b: Any, c: Any) -> Any:
    # The product is exact in float64; its sum rounds twice, which can show in the last bit.
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


fma_f32: Callable[..., Any] = _fma_f32
get_f16: Callable[..., Any] = _get_f16
set_f16: Callable[..., Any] = _set_f16
get_bf16: Callable[..., Any] = _get_bf16
get_e8m0: Callable[..., Any] = _get_e8m0

if not jit_disabled():
    _HALF, _FLOAT, _I16, _I32 = ir.HalfType(), ir.FloatType(), ir.IntType(16), ir.IntType(32)

    @intrinsic
    def _compiled_get_f16(typingctx: Any, address: Any) -> Any:
        """The float16 at ``address`` as float32."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            half = builder.load(builder.inttoptr(args[0], _HALF.as_pointer()), align=1)
            return builder.fpext(half, _FLOAT)

        return types.float32(types.intp), codegen

    @intrinsic
    def _compiled_set_f16(typingctx: Any, address: Any, value: Any) -> Any:
        """``value`` rounded to float16."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            half = builder.fptrunc(args[1], _HALF)
            builder.store(half, builder.inttoptr(args[0], _HALF.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.intp, types.float32), codegen

    @intrinsic
    def _compiled_get_bf16(typingctx: Any, address: Any) -> Any:
        """The bfloat16 at ``address`` as float32."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            half = builder.load(builder.inttoptr(args[0], _I16.as_pointer()), align=1)
            return builder.bitcast(builder.shl(builder.zext(half, _I32), _I32(16)), _FLOAT)

        return types.float32(types.intp), codegen

    @intrinsic
    def _compiled_get_e8m0(typingctx: Any, address: Any) -> Any:
        """2**(e - 128), e the byte at ``address``; subnormal for 0 and 1."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            byte = builder.load(builder.inttoptr(args[0], ir.IntType(8).as_pointer()), align=1)
            e = builder.zext(byte, _I32)
            normal = builder.shl(builder.sub(e, _I32(1)), _I32(23))
            small = builder.shl(_I32(0x00200000), builder.and_(e, _I32(1)))
            bits = builder.select(builder.icmp_unsigned("<", e, _I32(2)), small, normal)
            return builder.bitcast(bits, _FLOAT)

        return types.float32(types.intp), codegen

    @intrinsic
    def _compiled_fma_f32(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once."""

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.fma(*args)

        f32 = types.float32
        return f32(f32, f32, f32), codegen

    get_f16, set_f16, get_bf16 = _compiled_get_f16, _compiled_set_f16, _compiled_get_bf16
    fma_f32, get_e8m0 = _compiled_fma_f32, _compiled_get_e8m0
