"""IQ4_NL and IQ4_XS: codes of four bits for 16 unevenly spaced values.

IQ4_NL has the layout of Q4_0. IQ4_XS has 8 such groups of 32 in 256 elements, each with a scale of
6 bits: the lower four are nibbles of four bytes, the upper two pairs of bits of a word.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels._jit import inline
from trinity_kernels.deferred import simd
from trinity_kernels.instructions import instructions
from trinity_kernels.quants import emit
from trinity_kernels.quants.block32 import Block32, load_nibbles
from trinity_kernels.quants.q4 import unpack_nibbles
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType
from trinity_kernels.quants.superblock import SuperBlock

VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)

_IQ4_NL = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
_IQ4_XS = np.dtype([("d", "<f2"), ("scales_h", "<u2"), ("scales_l", "u1", 4), ("qs", "u1", 128)])
_TABLE = np.array(VALUES, np.float32)


def _decode_nl(blocks: Blocks) -> Floats:
    d = blocks["d"].astype(np.float32)[:, None]
    values: Floats = d * _TABLE[unpack_nibbles(blocks["qs"])]
    return values


def _decode_xs(blocks: Blocks) -> Floats:
    low = blocks["scales_l"][:, :, None] >> np.array([0, 4], np.uint8) & 15
    high = blocks["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = (low.reshape(-1, 8) | high << 4).astype(np.float32) - np.float32(32)
    d = blocks["d"].astype(np.float32)[:, None] * scales
    codes = unpack_nibbles(blocks["qs"].reshape(-1, 16)).reshape(-1, 8, 32)
    values: Floats = d[:, :, None] * _TABLE[codes]
    return values.reshape(-1, 256)


TYPES = (
    QuantType(
        name="IQ4_NL",
        block_size=32,
        block=_IQ4_NL,
        decode_blocks=_decode_nl,
        encode_blocks=None,
        max_rmse=0.09,
        source="ggml-common.h block_iq4_nl; ggml-quants.c dequantize_row_iq4_nl",
    ),
    QuantType(
        name="IQ4_XS",
        block_size=256,
        block=_IQ4_XS,
        decode_blocks=_decode_xs,
        encode_blocks=None,
        max_rmse=0.09,
        source="ggml-common.h block_iq4_xs; ggml-quants.c dequantize_row_iq4_xs",
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------

# Eight values in one number, because compiled functions know constant numbers, but no tuples.
_FIRST, _SECOND = np.array(VALUES, np.int8).view(np.uint64)


@inline
def value_of(nibble: int) -> int:
    """The value of a nibble."""
    half = _SECOND if nibble > 7 else _FIRST
    byte = int(half >> np.uint64(nibble % 8 * 8)) & 255
    return byte - 256 if byte > 127 else byte


def _code_nl(block: int, e: int) -> Any:
    return value_of(int(memory.get_u8(block + 2 + e % 16)) >> (e // 16 * 4) & 15)


def _code_xs(block: int, e: int) -> Any:
    return value_of(int(memory.get_u8(block + 8 + e // 32 * 16 + e % 16)) >> (e // 16 % 2 * 4) & 15)


def _scale_xs(block: int, g: int) -> Any:
    low = int(memory.get_u8(block + 4 + g // 2)) >> (g % 2 * 4) & 15
    bits = low | (int(memory.get_u16(block + 2)) >> (2 * g) & 3) * 16
    return np.float32(memory.get_f16(block) * np.float32(bits - 32))


def _codes_nl(isa: Any, first: int, second: int) -> Any:
    return look_up(isa, load_nibbles(first + 2, second + 2 if second != 0 else 0))


def _emit_codes_xs(level: str, builder: Any, block: Any, part: int) -> Any:
    packed = emit.load_bytes(builder, block, 8 + 32 * part, 32)
    return emit.look_up(level, builder, emit.nibbles_of_16(builder, packed), VALUES)


def _emit_scales_xs(builder: Any, block: Any) -> Any:
    wide = emit.vector(simd.I32, 16)
    low = emit.load_bytes(builder, block, 4, 4)
    low = builder.zext(simd.shuffle(builder, low, low, [0, 0, 1, 1, 2, 2, 3, 3] * 2), wide)
    low = emit.masked(builder, builder.lshr(low, emit.constant(wide, [0, 4] * 8)), 15)
    high = builder.zext(emit.load(builder, block, 2, simd.I16), simd.I32)
    high = builder.lshr(emit.splat(builder, high), emit.constant(wide, [*range(0, 16, 2)] * 2))
    high = builder.shl(emit.masked(builder, high, 3), emit.constant(wide, [4] * 16))
    scales = builder.sub(builder.or_(low, high), emit.constant(wide, [32] * 16))
    d = emit.splat(builder, emit.half(builder, block, 0))
    return builder.fmul(builder.sitofp(scales, simd.F32X16.ir), d)


@instructions("i8x64", "tag", "i8x64")
def look_up(builder: Any, isa: Any, codes: Any) -> Any:
    """The values of 64 codes."""
    return emit.look_up(isa.value, builder, codes, VALUES)


READERS = {
    "IQ4_NL": Block32(nbytes=18, codes=_codes_nl, code=_code_nl, signed=True),
    "IQ4_XS": SuperBlock(
        nbytes=136, emit_codes=_emit_codes_xs, code=_code_xs, emit_scales=_emit_scales_xs,
        scale=_scale_xs, signed=True,
    ),
}  # fmt: skip
