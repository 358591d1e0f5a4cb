"""Q1_0 and Q2_0: one or two bits for each element, with one scale; lowest bits first.

Q1_0 has blocks of 128 elements, -1 or +1. Q2_0 has blocks of 64 elements, -1, 0, +1 or +2. Some
files have blocks of 128 (Q2_0_G128) with the same type id; the size of a tensor tells them apart.
PQ2_0 has the blocks of Q2_0_G128 in files whose weights are the model's own, so its activations
have 19 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.deferred import simd
from trinity_kernels.quants import emit
from trinity_kernels.quants.quant_type import (
    Blocks,
    Floats,
    QuantType,
    inverse,
    round_half_away,
)
from trinity_kernels.quants.superblock import SuperBlock

_Q1_0 = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
_Q2_0 = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
_Q2_0_G128 = np.dtype([("d", "<f2"), ("qs", "u1", 32)])


def _decode_q1_0(blocks: Blocks) -> Floats:
    bits = np.unpackbits(blocks["qs"], axis=1, bitorder="little")
    d = blocks["d"].astype(np.float32)[:, None]
    return np.where(bits == 1, d, -d)


def _encode_q1_0(values: Floats) -> Blocks:
    blocks = np.empty(len(values), _Q1_0)
    blocks["d"] = np.abs(values).mean(axis=1, dtype=np.float64)
    blocks["qs"] = np.packbits(values >= 0, axis=1, bitorder="little")
    return blocks


def _decode_q2_0(blocks: Blocks) -> Floats:
    codes = blocks["qs"][:, :, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    d = blocks["d"].astype(np.float32)[:, None]
    values: Floats = (codes.reshape(len(blocks), -1).astype(np.float32) - np.float32(1)) * d
    return values


def _encode(values: Floats, block: np.dtype[np.void]) -> Blocks:
    d = np.abs(values).max(axis=1)[:, None]
    codes = np.clip(round_half_away(values * inverse(d)) + 1, 0, 3).astype(np.uint8)
    blocks = np.empty(len(values), block)
    blocks["d"] = d[:, 0]
    fours = codes.reshape(len(values), -1, 4) << np.array([0, 2, 4, 6], np.uint8)
    blocks["qs"] = np.bitwise_or.reduce(fours, axis=2)
    return blocks


def _encode_q2_0(values: Floats) -> Blocks:
    return _encode(values, _Q2_0)


def _encode_q2_0_g128(values: Floats) -> Blocks:
    return _encode(values, _Q2_0_G128)


TYPES = (
    QuantType(
        name="Q1_0",
        block_size=128,
        block=_Q1_0,
        decode_blocks=_decode_q1_0,
        encode_blocks=_encode_q1_0,
        max_rmse=0.62,
        source="ggml-common.h block_q1_0; ggml-quants.c dequantize_row_q1_0",
    ),
    QuantType(
        name="Q2_0",
        block_size=64,
        block=_Q2_0,
        decode_blocks=_decode_q2_0,
        encode_blocks=_encode_q2_0,
        max_rmse=5e-4,
        source="ggml-common.h block_q2_0; ggml-quants.c dequantize_row_q2_0",
        ternary=True,
    ),
    QuantType(
        name="Q2_0_G128",
        block_size=128,
        block=_Q2_0_G128,
        decode_blocks=_decode_q2_0,
        encode_blocks=_encode_q2_0_g128,
        max_rmse=5e-4,
        source="the first Bonsai files: block_q2_0 of twice as many elements",
        ternary=True,
    ),
    QuantType(
        name="PQ2_0",
        block_size=128,
        block=_Q2_0_G128,
        decode_blocks=_decode_q2_0,
        encode_blocks=_encode_q2_0_g128,
        max_rmse=5e-4,
        source="PrismML's llama.cpp, block_pq2_0",
        ternary=True,
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _scale(block: int, g: int) -> Any:
    return memory.get_f16(block)


def _code_q1_0(block: int, e: int) -> Any:
    return (int(memory.get_u8(block + 2 + e // 8)) >> (e % 8) & 1) * 2


def _code_q2_0(block: int, e: int) -> Any:
    return int(memory.get_u8(block + 2 + e // 4)) >> (e % 4 * 2) & 3


def _emit_codes_q1_0(level: str, builder: Any, block: Any, part: int) -> Any:
    bits = emit.load(builder, block, 2 + 8 * part, simd.I64)
    mask = builder.bitcast(bits, emit.vector(simd.I1, 64))
    kind = emit.vector(simd.I8, 64)
    return builder.select(mask, emit.constant(kind, [2] * 64), emit.constant(kind, [0] * 64))


def _emit_codes_q2_0(level: str, builder: Any, block: Any, part: int) -> Any:
    packed = emit.load_bytes(builder, block, 2 + 16 * part, 16)
    fours = simd.shuffle(builder, packed, packed, [i // 4 for i in range(64)])
    even = emit.masked(builder, emit.shifted_words(builder, fours, [0, 4] * 16), [3, 0] * 32)
    odd = emit.masked(builder, emit.shifted_words(builder, fours, [2, 6] * 16), [0, 3] * 32)
    return builder.or_(even, odd)


def _emit_scale(builder: Any, block: Any) -> Any:
    return emit.splat(builder, emit.half(builder, block, 0))


READERS = {
    name: SuperBlock(
        nbytes=nbytes, elements=elements, emit_codes=emit_codes, code=code,
        emit_scales=_emit_scale, scale=_scale, group=elements, offset=1, top=3, form=form,
    )
    for name, nbytes, elements, emit_codes, code, form in (
        ("Q1_0", 18, 128, _emit_codes_q1_0, _code_q1_0, "q8"),
        ("Q2_0", 18, 64, _emit_codes_q2_0, _code_q2_0, "q8"),
        ("Q2_0_G128", 34, 128, _emit_codes_q2_0, _code_q2_0, "q8"),
        ("PQ2_0", 34, 128, _emit_codes_q2_0, _code_q2_0, "q19"),
    )
}  # fmt: skip
