"""FP8: floating-point codes of eight bits (E4M3), 32 with a float32 scale.

GGUF has no such type. Checkpoints have one scale for a block of a matrix, a row or the whole
matrix; each block of 32 repeats it, so a block has 36 bytes. Values range from 2**-9 to 448, too
far for integers, so they are multiplied as floats.

Readers of checkpoints must refuse codes that are NaN, because compiled code reads them as 480.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.deferred import ir, simd
from trinity_kernels.quants import emit
from trinity_kernels.quants.floats import Plain
from trinity_kernels.quants.quant_type import Blocks, Bytes, Floats, QuantType
from trinity_kernels.scalars import power_of_two

_FP8 = np.dtype([("d", "<f4"), ("qs", "u1", 32)])
_LARGEST = 448


def e4m3(codes: Bytes) -> Floats:
    """The values of E4M3: a sign, 4 bits of exponent, 3 of mantissa; 0x7F and 0xFF are NaN."""
    bits = codes.astype(np.uint32)
    # A float32 whose exponent is 120 too low, which is also correct for subnormal codes.
    shifted = (bits & np.uint32(0x7F)) << np.uint32(20) | (bits & np.uint32(0x80)) << np.uint32(24)
    values = shifted.view(np.float32) * np.float32(2.0**120)
    result: Floats = np.where((codes & np.uint8(0x7F)) == 0x7F, np.float32(np.nan), values)
    return result


_VALUES = e4m3(np.arange(256, dtype=np.uint8))
# The bounds at which the next larger magnitude becomes the nearest.
_MIDDLES = (_VALUES[:126] + _VALUES[1:127]) / np.float32(2)


def _nearest(scaled: Floats) -> Bytes:
    """The codes of the nearest values; of two equally near ones the even code."""
    magnitude = np.abs(scaled)
    low, high = (np.searchsorted(_MIDDLES, magnitude, side=side) for side in ("left", "right"))
    codes = np.where(low % 2 == 0, low, high).astype(np.uint8)
    return np.where(np.signbit(scaled), codes | np.uint8(0x80), codes)


def _decode(blocks: Blocks) -> Floats:
    values: Floats = blocks["d"][:, None] * _VALUES[blocks["qs"]]
    return values


def _encode(values: Floats) -> Blocks:
    scales = np.abs(values).max(axis=1) / np.float32(_LARGEST)
    divisors: Floats = np.where(scales == 0, np.float32(1), scales)
    blocks = np.empty(len(values), _FP8)
    blocks["d"] = scales
    blocks["qs"] = _nearest(values / divisors[:, None])
    return blocks


TYPES = (
    QuantType(
        name="FP8",
        block_size=32,
        block=_FP8,
        decode_blocks=_decode,
        encode_blocks=_encode,
        max_rmse=0.03,
        source="OCP 8-bit Floating Point Specification 1.0 (E4M3)",
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------

_NBYTES = _FP8.itemsize


def _get(row: int, i: int) -> Any:
    block = row + i // 32 * _NBYTES
    byte = int(memory.get_u8(block + 4 + i % 32))
    mantissa, exponent = byte & 7, byte >> 3 & 15
    value = mantissa * 2.0**-9
    if exponent != 0:
        value = (8 + mantissa) * power_of_two(np.float32(exponent - 10))
    if byte > 127:
        value = -value
    return np.float32(memory.get_f32(block) * np.float32(value))


def _emit_load(builder: Any, row: Any, n: Any) -> Any:
    """As float16 the bits, moved up, are 2**-8 of the value, subnormal ones too; the scale is 2**8
    of its own."""
    block = builder.add(row, builder.mul(builder.lshr(n, simd.I64(1)), simd.I64(_NBYTES)))
    at = builder.add(block, builder.mul(builder.and_(n, simd.I64(1)), simd.I64(16)))
    short = emit.vector(simd.I16, 16)
    bits = builder.sext(emit.load_bytes(builder, at, 4, 16), short)
    bits = builder.shl(bits, emit.constant(short, [7] * 16))
    bits = builder.and_(bits, emit.constant(short, [0xBF80] * 16))
    values = builder.fpext(builder.bitcast(bits, emit.vector(ir.HalfType(), 16)), simd.F32X16.ir)
    scale = builder.fmul(emit.load(builder, block, 0, simd.F32), simd.F32(256.0))
    return builder.fmul(values, emit.splat(builder, scale))


READERS = {
    "FP8": Plain(nbytes=_NBYTES, get=_get, emit_load=_emit_load, elements=32),
}
