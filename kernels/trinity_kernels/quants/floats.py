"""F32, F16 and BF16: plain numbers, kept as blocks of one element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from trinity_kernels import memory
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType

if not jit_disabled():
    from trinity_kernels.quants import emit

_F32 = np.dtype([("x", "<f4")])
_F16 = np.dtype([("x", "<f2")])
_BF16 = np.dtype([("x", "<u2")])


def _decode(blocks: Blocks) -> Floats:
    values: Floats = blocks["x"].astype(np.float32)[:, None]
    return values


def _encode_f32(values: Floats) -> Blocks:
    return np.ascontiguousarray(values[:, 0], "<f4").view(_F32)


def _encode_f16(values: Floats) -> Blocks:
    return values[:, 0].astype("<f2").view(_F16)


def _decode_bf16(blocks: Blocks) -> Floats:
    bits = blocks["x"].astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)[:, None]


def _encode_bf16(values: Floats) -> Blocks:
    bits = np.ascontiguousarray(values[:, 0]).view(np.uint32)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    # Quiet NaNs keep their sign and top bits; the rest rounds half to even.
    quiet = (bits >> np.uint32(16)) | np.uint32(64)
    even = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = (bits + even) >> np.uint32(16)
    return np.where(is_nan, quiet, rounded).astype("<u2").view(_BF16)


TYPES = (
    QuantType(
        name="F32",
        block_size=1,
        block=_F32,
        decode_blocks=_decode,
        encode_blocks=_encode_f32,
        max_rmse=0.0,
        source="IEEE 754 binary32",
    ),
    QuantType(
        name="F16",
        block_size=1,
        block=_F16,
        decode_blocks=_decode,
        encode_blocks=_encode_f16,
        max_rmse=3e-4,
        source="IEEE 754 binary16",
    ),
    QuantType(
        name="BF16",
        block_size=1,
        block=_BF16,
        decode_blocks=_decode_bf16,
        encode_blocks=_encode_bf16,
        max_rmse=2.5e-3,
        source="ggml-impl.h ggml_compute_fp32_to_bf16: the upper half of binary32",
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """How one type's numbers are read.

    ``get(address)``: one as float32. ``emit_load(builder, address)``: 16 as LLVM code.
    ``loads``: the element by which simd's loads are named. ``split``: a number has more significant
    bits than bfloat16, and is the sum of two.
    """

    form: ClassVar[str] = "f32"

    nbytes: int
    get: Callable[..., Any]
    emit_load: Callable[[Any, Any], Any]
    loads: str
    split: bool = False


def _emit_load_f32(builder: Any, address: Any) -> Any:
    return emit.load(builder, address, 0, emit.F32X16)


def _emit_load_f16(builder: Any, address: Any) -> Any:
    half = emit.load(builder, address, 0, emit.vector(emit.ir.HalfType(), 16))
    return builder.fpext(half, emit.F32X16)


def _emit_load_bf16(builder: Any, address: Any) -> Any:
    wide = emit.vector(emit.I32, 16)
    short = builder.zext(emit.load(builder, address, 0, emit.vector(emit.I16, 16)), wide)
    return builder.bitcast(builder.shl(short, emit.constant(wide, [16] * 16)), emit.F32X16)


READERS = {
    "F32": Plain(nbytes=4, get=memory.get_f32, emit_load=_emit_load_f32, loads="f32"),
    "F16": Plain(nbytes=2, get=memory.get_f16, emit_load=_emit_load_f16, loads="f16", split=True),
    "BF16": Plain(nbytes=2, get=memory.get_bf16, emit_load=_emit_load_bf16, loads="bf16"),
}
