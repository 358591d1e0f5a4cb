"""I2_S: bitnet.cpp's ternary codes of 2 bits with one float32 scale per tensor.

Codes 0, 1, 2 are -1, 0, +1; 3 is never written and reads as +2. The tensor is one flat sequence
of codes: with p bytes to a block, code p*g + i of the block lies in byte i at bits 6-2g. Blocks
are 128 codes in 32 bytes in files made by the converters or on x86, and 64 codes in 16 bytes
where bitnet.cpp's quantizer ran on ARM. Nothing in a file tells the two apart, so the second is
a type of its own here, I2_S_ARM, to be named by the user.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants.dot import AHEAD, register_dot, ternary_place, ternary_result
from trinity_kernels.quants.quant_type import (
    Blocks,
    Bytes,
    Floats,
    QuantType,
    Unused,
    has_code_3,
)
from trinity_kernels.quants.unpack import register_unpack, ternary_offset

if not jit_disabled():
    from trinity_kernels import byte_dots, simd
    from trinity_kernels._jit import inline

    @inline
    def load_codes(w: int, left: int) -> Any:
        """64 bytes of codes, or 32 and zeros where at most 128 codes are left."""
        if left <= 128:
            return simd.concat_i8x32(simd.load_i8x32(w), simd.splat_i8x32(0))
        return simd.load_i8x64(w)


_I2_S = np.dtype([("qs", "u1", 32)])
_I2_S_ARM = np.dtype([("qs", "u1", 16)])
_SHIFTS = np.array([6, 4, 2, 0], np.uint8)[:, None]


def unpack_codes(qs: Bytes) -> Bytes:
    """(n, p) bytes to (n, 4 p) codes 0..3."""
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
    # In units of the largest magnitude, so exact for ternary input.
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

# -- the compiled dot product ----------------------------------------------------------------------


def _dot_shifts(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """Codes shifted down to 0..3: for dot products whose unsigned side must stay small."""
    a0 = simd.splat_i32x16(0)
    a1 = simd.splat_i32x16(0)
    three = simd.splat_i8x64(3)
    for c in range((k + 255) // 256):
        simd.prefetch(w + 64 * c + AHEAD)
        v = load_codes(w + 64 * c, k - 256 * c)
        p = x + 256 * c
        top = simd.shift_right_i8x64(v, 6)
        a0 = byte_dots.dot_u8i8(isa, a0, top, simd.load_i8x64(p))
        second = simd.shift_right_i8x64(v, 4) & three
        a1 = byte_dots.dot_u8i8(isa, a1, second, simd.load_i8x64(p + 64))
        third = simd.shift_right_i8x64(v, 2) & three
        a0 = byte_dots.dot_u8i8(isa, a0, third, simd.load_i8x64(p + 128))
        a1 = byte_dots.dot_u8i8(isa, a1, v & three, simd.load_i8x64(p + 192))
    return ternary_result(simd.sum_i32x16(a0 + a1), x, k)


def _dot_masks(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    """Codes masked in place, 64, 16, 4 and 1 times too large; each in its own sum until the end."""
    a0 = simd.splat_i32x16(0)
    a1 = simd.splat_i32x16(0)
    a2 = simd.splat_i32x16(0)
    a3 = simd.splat_i32x16(0)
    for c in range((k + 255) // 256):
        simd.prefetch(w + 64 * c + AHEAD)
        v = load_codes(w + 64 * c, k - 256 * c)
        p = x + 256 * c
        a0 = byte_dots.dot_u8i8(isa, a0, v & simd.splat_i8x64(192), simd.load_i8x64(p))
        a1 = byte_dots.dot_u8i8(isa, a1, v & simd.splat_i8x64(48), simd.load_i8x64(p + 64))
        a2 = byte_dots.dot_u8i8(isa, a2, v & simd.splat_i8x64(12), simd.load_i8x64(p + 128))
        a3 = byte_dots.dot_u8i8(isa, a3, v & simd.splat_i8x64(3), simd.load_i8x64(p + 192))
    # Each lane is a multiple of its factor, so the shifts are exact (arithmetic, by division).
    total = simd.ashr_i32x16(a0, 6) + simd.ashr_i32x16(a1, 4) + simd.ashr_i32x16(a2, 2) + a3
    return ternary_result(simd.sum_i32x16(total), x, k)


def _portable(isa: Any, qt: Any, w: int, x: int, k: int) -> Any:
    total = 0
    for e in range(k):
        byte = int(memory.get_u8(w + e // 128 * 32 + e % 32))
        code = (byte >> (6 - 2 * (e % 128 // 32))) & 3
        total += code * int(memory.get_i8(x + ternary_place(e)))
    return ternary_result(total, x, k)


register_dot("I2_S", "ternary", vector=_dot_shifts, portable=_portable,
             avx512vnni=_dot_masks, amx=_dot_masks)  # fmt: skip


def _unpack(isa: Any, qt: Any, w: int, to: int, k: int) -> None:
    below = simd.splat_i8x64(ternary_offset(isa))
    three = simd.splat_i8x64(3)
    for c in range((k + 255) // 256):
        v = load_codes(w + 64 * c, k - 256 * c)
        at = to + 4096 * c
        simd.store_i8x64(at, simd.shift_right_i8x64(v, 6) - below)
        simd.store_i8x64(at + 1024, (simd.shift_right_i8x64(v, 4) & three) - below)
        simd.store_i8x64(at + 2048, (simd.shift_right_i8x64(v, 2) & three) - below)
        simd.store_i8x64(at + 3072, (v & three) - below)


register_unpack("I2_S", _unpack, step=64)
