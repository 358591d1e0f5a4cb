"""MXFP4 and NVFP4: floating-point codes of four bits (E2M1) with scales of eight bits.

MXFP4: a byte, the exponent of 2 of the scale (E8M0), and 32 elements laid out as in Q4_0. NVFP4: 4
scales (E4M3 without sign) and 64 elements in 4 groups of 16, each with 8 bytes of such nibbles.
Compiled code reads doubled values, which are integers, plus 16, and half of each scale.
Models are trained in both types, so weights are exact and activations have 19 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import ir, simd
from trinity_kernels.instructions import instructions
from trinity_kernels.quants import emit
from trinity_kernels.quants.block32 import Block32, load_nibbles
from trinity_kernels.quants.q4 import pack_nibbles, unpack_nibbles
from trinity_kernels.quants.quant_type import Blocks, Bytes, Floats, QuantType, Unused, inverse
from trinity_kernels.quants.superblock import SuperBlock
from trinity_kernels.scalars import power_of_two

VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

_MXFP4 = np.dtype([("e", "u1"), ("qs", "u1", 16)])
_NVFP4 = np.dtype([("scales", "u1", 4), ("qs", "u1", 32)])
_TABLE = np.array(VALUES, np.float32)
_MOVED_UP = 16
_VALUES_ABOVE = tuple(_MOVED_UP + value for value in VALUES)
# The E8M0 code of 1024; no model has larger scales, and 255 is NaN.
_LARGEST_EXPONENT = 137


def powers_of_2(exponents: Bytes) -> Floats:
    """2**(e - 128), half of the E8M0 value; 255 is 2**127, not NaN."""
    e = exponents.astype(np.uint32)
    bits = np.where(e < 2, np.uint32(0x00200000) << (e & 1), (e - 1) << np.uint32(23))
    return bits.astype(np.uint32).view(np.float32)


def half_e4m3(bytes_: Bytes) -> Floats:
    """Half of the magnitude of an E4M3 code; 0x7F, its NaN, becomes 0."""
    bits = (bytes_ & np.uint8(0x7F)).astype(np.uint32) << np.uint32(20)
    values = bits.view(np.float32) * np.float32(2.0**119)
    result: Floats = np.where(bytes_ == 0x7F, np.float32(0), values)
    return result


# The bounds at which the next larger value becomes the nearest.
_MIDDLES = np.array([0.5, 1.5, 2.5, 3.5, 5, 7, 10], np.float32)


def _nearest(scaled: Floats) -> NDArray[np.uint8]:
    """The codes of the nearest values; of two equally near ones the smaller."""
    codes = np.searchsorted(_MIDDLES, np.abs(scaled)).astype(np.uint8)
    return np.where((scaled < 0) & (codes > 0), codes | np.uint8(8), codes)


def _e4m3(values: Floats) -> Bytes:
    """The nearest E4M3 codes of values >= 0, halves up; larger values become 448."""
    clipped = np.minimum(values, np.float32(448))
    bits = clipped.view(np.uint32)
    # The mantissa's fourth bit decides the rounding; a carry goes into the exponent.
    normal = (bits + np.uint32(1 << 19) >> np.uint32(20)).astype(np.int64) - (120 << 3)
    small = np.minimum(clipped * np.float32(512) + np.float32(0.5), 7).astype(np.int64)
    return np.where(clipped < 2.0**-6, small, np.minimum(normal, 0x7E)).astype(np.uint8)


def _decode_mxfp4(blocks: Blocks) -> Floats:
    values: Floats = powers_of_2(blocks["e"])[:, None] * _TABLE[unpack_nibbles(blocks["qs"])]
    return values


def _encode_mxfp4(values: Floats) -> Blocks:
    largest = np.abs(values).max(axis=1)
    e = np.where(largest > 0, np.floor(np.log2(largest)) - 2 + 127, 0)
    e = np.maximum(e, 0).astype(np.uint8)
    blocks = np.empty(len(values), _MXFP4)
    blocks["e"] = e
    blocks["qs"] = pack_nibbles(_nearest(values / powers_of_2(e)[:, None]))
    return blocks


def _encode_nvfp4(values: Floats) -> Blocks:
    groups = values.reshape(-1, 4, 16)
    scales = _e4m3(np.abs(groups).max(axis=2) / np.float32(6))
    codes = _nearest(groups * inverse(half_e4m3(scales))[:, :, None])
    blocks = np.empty(len(values), _NVFP4)
    blocks["scales"] = scales
    blocks["qs"] = (codes[:, :, :8] | codes[:, :, 8:] << 4).reshape(-1, 32)
    return blocks


def _decode_nvfp4(blocks: Blocks) -> Floats:
    d = half_e4m3(blocks["scales"])[:, :, None]
    qs = blocks["qs"].reshape(-1, 4, 8)
    codes = np.concatenate([qs & np.uint8(15), qs >> np.uint8(4)], axis=2)
    values: Floats = d * _TABLE[codes]
    return values.reshape(-1, 64)


def _has_odd_exponent(blocks: Blocks) -> NDArray[np.bool_]:
    return np.asarray(blocks["e"] > np.uint8(_LARGEST_EXPONENT), np.bool_)


def _has_odd_scale(blocks: Blocks) -> NDArray[np.bool_]:
    return np.asarray((blocks["scales"] >= np.uint8(0x7F)).any(axis=1), np.bool_)


TYPES = (
    QuantType(
        name="MXFP4",
        block_size=32,
        block=_MXFP4,
        decode_blocks=_decode_mxfp4,
        encode_blocks=_encode_mxfp4,
        max_rmse=0.13,
        source="OCP Microscaling Formats 1.0; ggml-quants.c quantize_row_mxfp4_ref",
        unused=Unused(
            "an exponent that is NaN or a scale above 1024",
            f"exponents up to {_LARGEST_EXPONENT}",
            _has_odd_exponent,
        ),
    ),
    QuantType(
        name="NVFP4",
        block_size=64,
        block=_NVFP4,
        decode_blocks=_decode_nvfp4,
        encode_blocks=_encode_nvfp4,
        max_rmse=0.12,
        source="ggml-common.h block_nvfp4; ggml-quants.c dequantize_row_nvfp4",
        unused=Unused(
            "scales that are NaN or have a sign",
            "scales from 0 to 0x7E",
            _has_odd_scale,
        ),
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


@inline
def value_of(nibble: int) -> int:
    """The doubled value of a nibble: steps of one, from code 4 of two, from code 6 of four."""
    m = nibble & 7
    value = m
    if m >= 4:
        value = (2 + (m & 1)) << ((m >> 1) - 1)
    return -value if nibble > 7 else value


def _code_mxfp4(block: int, e: int) -> Any:
    nibble = int(memory.get_u8(block + 1 + e % 16)) >> (e // 16 * 4) & 15
    return _MOVED_UP + value_of(nibble)


def _codes_mxfp4(isa: Any, first: int, second: int) -> Any:
    return look_up(isa, load_nibbles(first + 1, second + 1 if second != 0 else 0))


def _code_nvfp4(block: int, e: int) -> Any:
    nibble = int(memory.get_u8(block + 4 + e // 16 * 8 + e % 8)) >> (e // 8 % 2 * 4) & 15
    return _MOVED_UP + value_of(nibble)


def _scale_nvfp4(block: int, g: int) -> Any:
    byte = int(memory.get_u8(block + g))
    if byte == 0x7F:
        return np.float32(0)
    mantissa = byte & 7
    exponent = byte >> 3 & 15
    if exponent == 0:
        return np.float32(mantissa * 2.0**-10)
    return np.float32((8 + mantissa) * power_of_two(np.float32(exponent - 11)))


def _emit_codes_nvfp4(level: str, builder: Any, block: Any, part: int) -> Any:
    packed = emit.load_bytes(builder, block, 4, 32)
    order = [i for start in range(0, 32, 8) for i in [*range(start, start + 8)] * 2]
    packed = simd.shuffle(builder, packed, packed, order)
    codes = emit.masked(builder, emit.shifted_words(builder, packed, ([0] * 4 + [4] * 4) * 4), 15)
    return emit.look_up(level, builder, codes, _VALUES_ABOVE)


def _emit_scales_nvfp4(builder: Any, block: Any) -> Any:
    """As float16 the bits, moved up, are 2**-8 of the scale, subnormal ones too; half is wanted."""
    bytes_ = emit.load_bytes(builder, block, 0, 4, repeat=4)
    short, none = emit.vector(simd.I16, 16), emit.constant(bytes_.type, [0] * 16)
    nan = builder.icmp_unsigned("==", bytes_, emit.constant(bytes_.type, [0x7F] * 16))
    bits = builder.zext(builder.select(nan, none, bytes_), short)
    bits = emit.masked(builder, builder.shl(bits, emit.constant(short, [7] * 16)), 0x3F80)
    halves = builder.bitcast(bits, emit.vector(ir.HalfType(), 16))
    values = builder.fpext(halves, simd.F32X16.ir)
    return builder.fmul(values, emit.constant(simd.F32X16.ir, [2.0**7] * 16))


@instructions("i8x64", "tag", "i8x64")
def look_up(builder: Any, isa: Any, codes: Any) -> Any:
    """The doubled values of 64 codes, plus the offset."""
    return emit.look_up(isa.value, builder, codes, _VALUES_ABOVE)


READERS = {
    "MXFP4": Block32(
        nbytes=17, codes=_codes_mxfp4, code=_code_mxfp4, form="q19", offset=_MOVED_UP,
        scales="e8m0", fits_bfloat16=True,
    ),
    "NVFP4": SuperBlock(
        nbytes=36, emit_codes=_emit_codes_nvfp4, code=_code_nvfp4,
        emit_scales=_emit_scales_nvfp4, scale=_scale_nvfp4, elements=64, group=16,
        offset=_MOVED_UP, top=_MOVED_UP + max(VALUES), form="q19", fits_bfloat16=True,
    ),
}  # fmt: skip
