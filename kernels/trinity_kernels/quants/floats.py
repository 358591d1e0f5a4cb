"""F32, F16 and BF16: plain numbers, as blocks of one element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.deferred import ir, simd
from trinity_kernels.quants import emit
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType
from trinity_kernels.quants.reader import BlockReader

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
    # NaNs become quiet, with their sign and top bits; numbers are rounded half to even.
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
class Plain(BlockReader):
    """How a type's numbers are read, which are multiplied as floats."""

    elements: int = 1
    form: str = "f32"
    # get(row, i): number i of the row at that address, float32.
    get: Callable[..., Any]
    # emit_load(builder, row, n): LLVM code of numbers 16 n to 16 n + 15.
    emit_load: Callable[[Any, Any, Any], Any]
    # The element in the names of simd's loads of fewer than 16; "" if rows are blocks of 32.
    tail: str = ""
    # How many bfloat16 represent a number exactly; 0 if more than two.
    parts: int = 0

    @property
    def bfloat16s(self) -> int:
        """As ``parts``."""
        return self.parts


def _get_f32(row: int, i: int) -> Any:
    return memory.get_f32(row + 4 * i)


def _get_f16(row: int, i: int) -> Any:
    return memory.get_f16(row + 2 * i)


def _get_bf16(row: int, i: int) -> Any:
    return memory.get_bf16(row + 2 * i)


def _emit_16(builder: Any, row: Any, n: Any, kind: Any, nbytes: int) -> Any:
    """The 16 elements of ``kind`` and ``nbytes`` bytes at number 16 ``n`` of a row."""
    at = builder.add(row, builder.mul(n, simd.I64(16 * nbytes)))
    return emit.load(builder, at, 0, emit.vector(kind, 16))


def _emit_load_f32(builder: Any, row: Any, n: Any) -> Any:
    return _emit_16(builder, row, n, simd.F32, 4)


def _emit_load_f16(builder: Any, row: Any, n: Any) -> Any:
    return builder.fpext(_emit_16(builder, row, n, ir.HalfType(), 2), simd.F32X16.ir)


def _emit_load_bf16(builder: Any, row: Any, n: Any) -> Any:
    wide = emit.vector(simd.I32, 16)
    short = builder.zext(_emit_16(builder, row, n, simd.I16, 2), wide)
    return builder.bitcast(builder.shl(short, emit.constant(wide, [16] * 16)), simd.F32X16.ir)


READERS = {
    "F32": Plain(nbytes=4, get=_get_f32, emit_load=_emit_load_f32, tail="f32"),
    "F16": Plain(nbytes=2, get=_get_f16, emit_load=_emit_load_f16, tail="f16", parts=2),
    "BF16": Plain(nbytes=2, get=_get_bf16, emit_load=_emit_load_bf16, tail="bf16", parts=1),
}
