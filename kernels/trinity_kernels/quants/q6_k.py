"""Q6_K and Q8_K: blocks of 256 elements.

Q6_K has 16 groups of 16 with an int8 scale each. The lower four bits of 128 elements are nibbles of
64 bytes; the upper two bits of elements l, 32 + l, 64 + l and 96 + l are one byte. Q8_K is ggml's
type for activations: it is decoded, but products do not take it as a weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.quants import emit
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType, inverse
from trinity_kernels.quants.superblock import Columns, SuperBlock

_Q6_K = np.dtype([("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2")])
_Q8_K = np.dtype([("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16)])


def _decode_q6_k(blocks: Blocks) -> Floats:
    scales = blocks["d"].astype(np.float32)[:, None] * blocks["scales"].astype(np.float32)
    nibble = np.array([0, 4], np.uint8)[:, None]
    low = blocks["ql"].reshape(-1, 2, 1, 64) >> nibble & 15
    pair = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = blocks["qh"].reshape(-1, 2, 1, 32) >> pair & 3
    codes = low.reshape(-1, 16, 16) | high.reshape(-1, 16, 16) << 4
    values: Floats = scales[:, :, None] * (codes.astype(np.float32) - np.float32(32))
    return values.reshape(-1, 256)


def _decode_q8_k(blocks: Blocks) -> Floats:
    values: Floats = blocks["d"][:, None] * blocks["qs"].astype(np.float32)
    return values


def _encode_q8_k(values: Floats) -> Blocks:
    """Codes down to -128: the scale has the opposite sign of the largest element."""
    index = np.abs(values).argmax(axis=1)[:, None]
    d = np.take_along_axis(values, index, axis=1) / np.float32(-127)
    blocks = np.empty(len(values), _Q8_K)
    blocks["d"] = d[:, 0]
    blocks["qs"] = np.minimum(np.rint(values * inverse(d)), 127).astype(np.int8)
    blocks["bsums"] = blocks["qs"].reshape(-1, 16, 16).sum(axis=2)
    return blocks


TYPES = (
    QuantType(
        name="Q6_K",
        block_size=256,
        block=_Q6_K,
        decode_blocks=_decode_q6_k,
        encode_blocks=None,
        max_rmse=0.02,
        source="ggml-common.h block_q6_K; ggml-quants.c dequantize_row_q6_K",
    ),
    QuantType(
        name="Q8_K",
        block_size=256,
        block=_Q8_K,
        decode_blocks=_decode_q8_k,
        encode_blocks=_encode_q8_k,
        max_rmse=8e-3,
        source="ggml-common.h block_q8_K; ggml-quants.c quantize_row_q8_K_ref",
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _code_q6_k(block: int, e: int) -> Any:
    half, at = e // 128, e % 128
    low = int(memory.get_u8(block + 64 * half + at % 64)) >> (at // 64 * 4) & 15
    return low | (int(memory.get_u8(block + 128 + 32 * half + at % 32)) >> (at // 32 * 2) & 3) * 16


def _scale_q6_k(block: int, g: int) -> Any:
    return np.float32(memory.get_f16(block + 208) * np.float32(memory.get_i8(block + 192 + g)))


def _emit_codes_q6_k(level: str, builder: Any, block: Any, part: int) -> Any:
    half, upper = divmod(part, 2)
    low = emit.load_bytes(builder, block, 64 * half, 64)
    low = emit.masked(builder, emit.shifted_right(builder, low, [4 * upper]), 15)
    high = emit.load_bytes(builder, block, 128 + 32 * half, 32, repeat=2)
    high = emit.shifted_right(builder, high, [0, 2] if upper else [-4, -2])
    return builder.or_(low, emit.masked(builder, high, 48))


def _emit_scales_q6_k(builder: Any, block: Any) -> Any:
    scales = emit.floats(builder, emit.load_bytes(builder, block, 192, 16), signed=True)
    return builder.fmul(scales, emit.splat(builder, emit.half(builder, block, 208)))


def _emit_code_columns(builder: Any, columns: Columns) -> Iterator[Any]:
    for half in range(2):
        low = [word for i in range(4) for word in columns(64 * half + 16 * i)]
        high = [word for i in range(2) for word in columns(128 + 32 * half + 16 * i)]
        for i in range(32):
            code = emit.fields(builder, low[i % 16], i // 16 * 4, 0x0F0F0F0F)
            bits = emit.fields(builder, high[i % 8], i // 8 * 2 - 4, 0x30303030)
            yield builder.or_(code, bits)


def _emit_scale_columns(builder: Any, columns: Columns) -> Iterator[Any]:
    d = emit.halves(builder, columns(194)[3], 16)
    for words in columns(192):
        for byte in range(4):
            left, right = (emit.constant(words.type, [n] * 16) for n in (24 - 8 * byte, 24))
            scale = builder.ashr(builder.shl(words, left), right)
            yield builder.fmul(builder.sitofp(scale, d.type), d)


READERS = {
    "Q6_K": SuperBlock(
        nbytes=210, emit_codes=_emit_codes_q6_k, code=_code_q6_k, emit_scales=_emit_scales_q6_k,
        scale=_scale_q6_k, group=16, offset=32, top=63, emit_code_columns=_emit_code_columns,
        emit_scale_columns=_emit_scale_columns,
    ),
}  # fmt: skip
