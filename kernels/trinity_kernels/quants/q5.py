"""Q5_0 and Q5_1: Q4_0 and Q4_1 with a fifth bit, that of element j in bit j of ``qh``."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.quants.block32 import Block32, fifth_bits, load_nibbles
from trinity_kernels.quants.q4 import offset_codes, pack_nibbles, signed_codes, unpack_nibbles
from trinity_kernels.quants.quant_type import Blocks, Bytes, Floats, QuantType

_Q5_0 = np.dtype([("d", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])
_Q5_1 = np.dtype([("d", "<f2"), ("m", "<f2"), ("qh", "u1", 4), ("qs", "u1", 16)])


def _codes(blocks: Blocks) -> Floats:
    high = np.unpackbits(blocks["qh"], axis=1, bitorder="little")
    codes: Floats = (unpack_nibbles(blocks["qs"]) | (high << np.uint8(4))).astype(np.float32)
    return codes


def pack_fifth_bits(codes: Bytes) -> Bytes:
    """The fifth bits of codes (n, 32) as (n, 4) bytes, that of element 0 lowest."""
    return np.packbits(codes >> np.uint8(4), axis=1, bitorder="little")


def _decode_q5_0(blocks: Blocks) -> Floats:
    d = blocks["d"].astype(np.float32)[:, None]
    return d * (_codes(blocks) - np.float32(16))


def _encode_q5_0(values: Floats) -> Blocks:
    d, codes = signed_codes(values, 16)
    blocks = np.empty(len(values), _Q5_0)
    blocks["d"], blocks["qh"], blocks["qs"] = d[:, 0], pack_fifth_bits(codes), pack_nibbles(codes)
    return blocks


def _decode_q5_1(blocks: Blocks) -> Floats:
    d = blocks["d"].astype(np.float32)[:, None]
    m = blocks["m"].astype(np.float32)[:, None]
    return d * _codes(blocks) + m


def _encode_q5_1(values: Floats) -> Blocks:
    d, m, codes = offset_codes(values, 31)
    blocks = np.empty(len(values), _Q5_1)
    blocks["d"], blocks["m"] = d[:, 0], m[:, 0]
    blocks["qh"], blocks["qs"] = pack_fifth_bits(codes), pack_nibbles(codes)
    return blocks


TYPES = (
    QuantType(
        name="Q5_0",
        block_size=32,
        block=_Q5_0,
        decode_blocks=_decode_q5_0,
        encode_blocks=_encode_q5_0,
        max_rmse=0.05,
        source="ggml-common.h block_q5_0; ggml-quants.c quantize_row_q5_0_ref",
    ),
    QuantType(
        name="Q5_1",
        block_size=32,
        block=_Q5_1,
        decode_blocks=_decode_q5_1,
        encode_blocks=_encode_q5_1,
        max_rmse=0.045,
        source="ggml-common.h block_q5_1; ggml-quants.c quantize_row_q5_1_ref",
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _code_q5_0(block: int, e: int) -> Any:
    low = (int(memory.get_u8(block + 6 + e % 16)) >> (e // 16 * 4)) & 15
    return low | ((int(memory.get_u32(block + 2)) >> e) & 1) << 4


def _codes_q5_0(isa: Any, first: int, second: int) -> Any:
    if second == 0:
        bits = fifth_bits(memory.get_u32(first + 2), np.uint32(0))
        return load_nibbles(first + 6, 0) | bits
    bits = fifth_bits(memory.get_u32(first + 2), memory.get_u32(second + 2))
    return load_nibbles(first + 6, second + 6) | bits


def _code_q5_1(block: int, e: int) -> Any:
    low = (int(memory.get_u8(block + 8 + e % 16)) >> (e // 16 * 4)) & 15
    return low | ((int(memory.get_u32(block + 4)) >> e) & 1) << 4


def _codes_q5_1(isa: Any, first: int, second: int) -> Any:
    if second == 0:
        bits = fifth_bits(memory.get_u32(first + 4), np.uint32(0))
        return load_nibbles(first + 8, 0) | bits
    bits = fifth_bits(memory.get_u32(first + 4), memory.get_u32(second + 4))
    return load_nibbles(first + 8, second + 8) | bits


READERS = {
    "Q5_0": Block32(nbytes=22, codes=_codes_q5_0, code=_code_q5_0, offset=16, fifth_bits_at=2),
    "Q5_1": Block32(nbytes=24, codes=_codes_q5_1, code=_code_q5_1, minimum_at=2, fifth_bits_at=4),
}
