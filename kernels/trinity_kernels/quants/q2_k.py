"""Q2_K and Q3_K: 256 elements in 16 groups of 16, each with a scale, and in Q2_K a minimum.

Elements l, 32 + l, 64 + l and 96 + l of each half are pairs of bits of one byte, the lowest first.
In Q3_K the third bit of element 32 i + l is bit i of byte l of the mask. Its scales have 6 bits:
the lower four are nibbles of eight bytes, the upper two pairs of bits of four bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.deferred import simd
from trinity_kernels.quants import emit
from trinity_kernels.quants.quant_type import Blocks, Bytes, Floats, QuantType
from trinity_kernels.quants.superblock import SuperBlock

_Q2_K = np.dtype([("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2"), ("dmin", "<f2")])
_Q3_K = np.dtype([("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2")])


def _pairs(qs: Bytes) -> Bytes:
    """The codes of two bits, (n, 16, 16), of bytes (n, 64)."""
    shifted: Bytes = qs.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]
    codes = shifted & np.uint8(3)
    return codes.reshape(-1, 16, 16)


def _decode_q2_k(blocks: Blocks) -> Floats:
    scales = blocks["scales"]
    d = blocks["d"].astype(np.float32)[:, None] * (scales & 15).astype(np.float32)
    m = blocks["dmin"].astype(np.float32)[:, None] * (scales >> 4).astype(np.float32)
    values: Floats = d[:, :, None] * _pairs(blocks["qs"]).astype(np.float32) - m[:, :, None]
    return values.reshape(-1, 256)


def _decode_q3_k(blocks: Blocks) -> Floats:
    packed = blocks["scales"]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = packed[:, None, 8:] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    scales = (low | high.reshape(-1, 16) << 4).astype(np.float32) - np.float32(32)
    d = blocks["d"].astype(np.float32)[:, None] * scales
    third = blocks["hmask"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes = _pairs(blocks["qs"]) | third.reshape(-1, 16, 16) << 2
    values: Floats = d[:, :, None] * (codes.astype(np.float32) - np.float32(4))
    return values.reshape(-1, 256)


TYPES = (
    QuantType(
        name="Q2_K",
        block_size=256,
        block=_Q2_K,
        decode_blocks=_decode_q2_k,
        encode_blocks=None,
        max_rmse=0.35,
        source="ggml-common.h block_q2_K; ggml-quants.c dequantize_row_q2_K",
    ),
    QuantType(
        name="Q3_K",
        block_size=256,
        block=_Q3_K,
        decode_blocks=_decode_q3_k,
        encode_blocks=None,
        max_rmse=0.18,
        source="ggml-common.h block_q3_K; ggml-quants.c dequantize_row_q3_K",
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _code_q2_k(block: int, e: int) -> Any:
    return int(memory.get_u8(block + 16 + e // 128 * 32 + e % 32)) >> (e // 32 % 4 * 2) & 3


def _scale_q2_k(block: int, g: int) -> Any:
    return np.float32(memory.get_f16(block + 80) * np.float32(memory.get_u8(block + g) & 15))


def _minimum_q2_k(block: int, g: int) -> Any:
    return np.float32(memory.get_f16(block + 82) * np.float32(memory.get_u8(block + g) >> 4))


def _emit_pairs(builder: Any, block: Any, offset: int, part: int) -> Any:
    packed = emit.load_bytes(builder, block, offset + part // 2 * 32, 32, repeat=2)
    first = part % 2 * 4
    return emit.masked(builder, emit.shifted_right(builder, packed, [first, first + 2]), 3)


def _emit_codes_q2_k(level: str, builder: Any, block: Any, part: int) -> Any:
    return _emit_pairs(builder, block, 16, part)


def _emit_scales_q2_k(builder: Any, block: Any) -> Any:
    scales = emit.masked(builder, emit.load_bytes(builder, block, 0, 16), 15)
    d = emit.splat(builder, emit.half(builder, block, 80))
    return builder.fmul(emit.floats(builder, scales), d)


def _emit_minima_q2_k(builder: Any, block: Any) -> Any:
    packed = emit.load_bytes(builder, block, 0, 16)
    minima = emit.masked(builder, emit.shifted_right(builder, packed, [4]), 15)
    m = emit.splat(builder, emit.half(builder, block, 82))
    return builder.fmul(emit.floats(builder, minima), m)


def _code_q3_k(block: int, e: int) -> Any:
    low = int(memory.get_u8(block + 32 + e // 128 * 32 + e % 32)) >> (e // 32 % 4 * 2) & 3
    return low | (int(memory.get_u8(block + e % 32)) >> (e // 32) & 1) * 4


def _scale_q3_k(block: int, g: int) -> Any:
    s = block + 96
    low = int(memory.get_u8(s + g % 8)) >> (g // 8 * 4) & 15
    bits = low | (int(memory.get_u8(s + 8 + g % 4)) >> (g // 4 * 2) & 3) * 16
    return np.float32(memory.get_f16(block + 108) * np.float32(bits - 32))


def _emit_codes_q3_k(level: str, builder: Any, block: Any, part: int) -> Any:
    third = emit.load_bytes(builder, block, 0, 32, repeat=2)
    third = emit.shifted_right(builder, third, [2 * part - 2, 2 * part - 1])
    return builder.or_(_emit_pairs(builder, block, 32, part), emit.masked(builder, third, 4))


def _emit_scales_q3_k(builder: Any, block: Any) -> Any:
    tail = emit.load_bytes(builder, block, 94, 16)  # two bytes of codes, 12 of scales, d
    wide = emit.vector(simd.I32, 16)
    low = builder.zext(simd.shuffle(builder, tail, tail, [*range(2, 10)] * 2), wide)
    low = builder.lshr(low, emit.constant(wide, [0] * 8 + [4] * 8))
    high = builder.zext(simd.shuffle(builder, tail, tail, [*range(10, 14)] * 4), wide)
    high = builder.lshr(high, emit.constant(wide, [i // 4 * 2 for i in range(16)]))
    high = builder.shl(emit.masked(builder, high, 3), emit.constant(wide, [4] * 16))
    bits = builder.or_(emit.masked(builder, low, 15), high)
    scales = builder.sub(bits, emit.constant(wide, [32] * 16))
    d = emit.splat(builder, emit.half(builder, block, 108))
    return builder.fmul(builder.sitofp(scales, simd.F32X16.ir), d)


READERS = {
    "Q2_K": SuperBlock(
        nbytes=84, emit_codes=_emit_codes_q2_k, code=_code_q2_k, emit_scales=_emit_scales_q2_k,
        scale=_scale_q2_k, emit_minima=_emit_minima_q2_k, minimum=_minimum_q2_k, group=16,
        minima=16, top=3,
    ),
    "Q3_K": SuperBlock(
        nbytes=110, emit_codes=_emit_codes_q3_k, code=_code_q3_k, emit_scales=_emit_scales_q3_k,
        scale=_scale_q3_k, group=16, offset=4, top=7,
    ),
}  # fmt: skip
