"""I2_S: bitnet.cpp's ternary codes of 2 bits with one float32 scale for the tensor.

Codes 0, 1, 2 are -1, 0, +1; 3 is never written and reads as +2. The tensor is one sequence of
blocks. In a block of p bytes, code p*g + i is in byte i at bits 6-2g. Blocks have 128 codes in 32
bytes in files from converters or x86, and 64 codes in 16 bytes in files from bitnet.cpp's quantizer
on ARM. Files do not tell the two apart, so the second is a separate type, I2_S_ARM, which the user
selects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.quants.quant_type import (
    Blocks,
    Bytes,
    Floats,
    QuantType,
    Unused,
    has_code_3,
)
from trinity_kernels.quants.ternary import Ternary

_I2_S = np.dtype([("qs", "u1", 32)])
_I2_S_ARM = np.dtype([("qs", "u1", 16)])
_SHIFTS = np.array([6, 4, 2, 0], np.uint8)[:, None]


def unpack_codes(qs: Bytes) -> Bytes:
    """The codes 0 .. 3, (n, 4 p), of bytes (n, p)."""
    codes: Bytes = (qs[:, None, :] >> _SHIFTS) & np.uint8(3)
    return codes.reshape(len(qs), -1)


def pack_codes(codes: Bytes) -> Bytes:
    """The inverse of unpack_codes."""
    fields = codes.reshape(len(codes), 4, -1) << _SHIFTS
    packed: Bytes = np.bitwise_or.reduce(fields, axis=1)
    return packed


def _decode(blocks: Blocks) -> Floats:
    codes: Floats = unpack_codes(blocks["qs"]).astype(np.float32)
    return codes - np.float32(1)


def _codes_of(values: Floats) -> Bytes:
    # Relative to the largest magnitude, so exact for ternary input.
    return (np.rint(values) + 1).astype(np.uint8)


def _encode(values: Floats) -> Blocks:
    blocks = np.empty(len(values), _I2_S)
    blocks["qs"] = pack_codes(_codes_of(values))
    return blocks


def _encode_arm(values: Floats) -> Blocks:
    blocks = np.empty(len(values), _I2_S_ARM)
    blocks["qs"] = pack_codes(_codes_of(values))
    return blocks


_UNUSED = Unused("the fourth code, 3", "the codes 0, 1 and 2", has_code_3("qs"))

TYPES = (
    QuantType(
        name="I2_S",
        block_size=128,
        block=_I2_S,
        decode_blocks=_decode,
        encode_blocks=_encode,
        max_rmse=0.0,
        source="microsoft/BitNet ggml-bitnet-mad.cpp quantize_i2_s, x86",
        tensor_scale=True,
        ternary=True,
        unused=_UNUSED,
    ),
    QuantType(
        name="I2_S_ARM",
        block_size=64,
        block=_I2_S_ARM,
        decode_blocks=_decode,
        encode_blocks=_encode_arm,
        max_rmse=0.0,
        source="microsoft/BitNet ggml-bitnet-mad.cpp quantize_i2_s, __ARM_NEON",
        tensor_scale=True,
        ternary=True,
        unused=_UNUSED,
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _packed(block: int, left: int) -> Any:
    """64 bytes of codes, or 32 and zeros if at most 128 codes are left.

    With two branches, one of which loads 64 bytes, LLVM 22 keeps only the other one for znver4.
    """
    second = 0
    if left > 128:
        second = 1
    high = simd.load_i8x32(block + 32 * second) & simd.splat_i8x32(-second)
    return simd.concat_i8x32(simd.load_i8x32(block), high)


_load = inline(_packed)


def _codes(block: int, left: int) -> Any:
    three = simd.splat_i8x64(3)
    v = _load(block, left)
    second = simd.shift_right_i8x64(v, 4) & three
    third = simd.shift_right_i8x64(v, 2) & three
    return simd.shift_right_i8x64(v, 6), second, third, v & three


def _code(block: int, e: int) -> Any:
    return (int(memory.get_u8(block + e // 128 * 32 + e % 32)) >> (6 - 2 * (e % 128 // 32))) & 3


READERS = {"I2_S": Ternary(nbytes=64, codes=_codes, code=_code, packed=_packed)}
