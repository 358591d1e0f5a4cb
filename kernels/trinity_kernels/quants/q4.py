"""Q4_0 and Q4_1: 32 elements of 4 bits; elements 0-15 are low nibbles, 16-31 high nibbles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import memory
from trinity_kernels.quants.block32 import Block32, load_nibbles
from trinity_kernels.quants.quant_type import Blocks, Bytes, Floats, QuantType, inverse

_Q4_0 = np.dtype([("d", "<f2"), ("qs", "u1", 16)])
_Q4_1 = np.dtype([("d", "<f2"), ("m", "<f2"), ("qs", "u1", 16)])


def unpack_nibbles(qs: Bytes) -> Bytes:
    """The codes (n, 32) of bytes (n, 16): all low nibbles, then all high ones."""
    return np.concatenate([qs & np.uint8(15), qs >> np.uint8(4)], axis=1)


def pack_nibbles(codes: Bytes) -> Bytes:
    """The inverse of unpack_nibbles; only the low four bits of a code are used."""
    packed: Bytes = (codes[:, :16] & np.uint8(15)) | (codes[:, 16:] << np.uint8(4))
    return packed


def signed_codes(values: Floats, half: int) -> tuple[Floats, NDArray[np.uint8]]:
    """Scales (n, 1) and codes of a type whose code ``half`` is zero.

    The element of largest magnitude gets code 0, so the scale has its opposite sign.
    """
    index = np.abs(values).argmax(axis=1)[:, None]
    d = np.take_along_axis(values, index, axis=1) / np.float32(-half)
    shifted = values * inverse(d) + np.float32(half + 0.5)
    return d, np.trunc(shifted).astype(np.uint8).clip(0, 2 * half - 1)


def offset_codes(values: Floats, top: int) -> tuple[Floats, Floats, NDArray[np.uint8]]:
    """Scales (n, 1), minima (n, 1) and codes 0..top of a type with a minimum per block."""
    m = values.min(axis=1)[:, None]
    d = (values.max(axis=1)[:, None] - m) / np.float32(top)
    shifted = (values - m) * inverse(d) + np.float32(0.5)
    return d, m, np.trunc(shifted).astype(np.uint8).clip(0, top)


def _decode_q4_0(blocks: Blocks) -> Floats:
    d = blocks["d"].astype(np.float32)[:, None]
    codes: Floats = unpack_nibbles(blocks["qs"]).astype(np.float32)
    return d * (codes - np.float32(8))


def _encode_q4_0(values: Floats) -> Blocks:
    d, codes = signed_codes(values, 8)
    blocks = np.empty(len(values), _Q4_0)
    blocks["d"], blocks["qs"] = d[:, 0], pack_nibbles(codes)
    return blocks


def _decode_q4_1(blocks: Blocks) -> Floats:
    d = blocks["d"].astype(np.float32)[:, None]
    m = blocks["m"].astype(np.float32)[:, None]
    return d * unpack_nibbles(blocks["qs"]).astype(np.float32) + m


def _encode_q4_1(values: Floats) -> Blocks:
    d, m, codes = offset_codes(values, 15)
    blocks = np.empty(len(values), _Q4_1)
    blocks["d"], blocks["m"], blocks["qs"] = d[:, 0], m[:, 0], pack_nibbles(codes)
    return blocks


TYPES = (
    QuantType(
        name="Q4_0",
        block_size=32,
        block=_Q4_0,
        decode_blocks=_decode_q4_0,
        encode_blocks=_encode_q4_0,
        max_rmse=0.1,
        source="ggml-common.h block_q4_0; ggml-quants.c quantize_row_q4_0_ref",
    ),
    QuantType(
        name="Q4_1",
        block_size=32,
        block=_Q4_1,
        decode_blocks=_decode_q4_1,
        encode_blocks=_encode_q4_1,
        max_rmse=0.09,
        source="ggml-common.h block_q4_1; ggml-quants.c quantize_row_q4_1_ref",
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _code_q4_0(block: int, e: int) -> Any:
    return (int(memory.get_u8(block + 2 + e % 16)) >> (e // 16 * 4)) & 15


def _codes_q4_0(isa: Any, first: int, second: int) -> Any:
    return load_nibbles(first + 2, second + 2 if second != 0 else 0)


def _code_q4_1(block: int, e: int) -> Any:
    return (int(memory.get_u8(block + 4 + e % 16)) >> (e // 16 * 4)) & 15


def _codes_q4_1(isa: Any, first: int, second: int) -> Any:
    return load_nibbles(first + 4, second + 4 if second != 0 else 0)


READERS = {
    "Q4_0": Block32(nbytes=18, codes=_codes_q4_0, code=_code_q4_0, offset=8, top=15, nibbles_at=2),
    "Q4_1": Block32(
        nbytes=20, codes=_codes_q4_1, code=_code_q4_1, top=15, minimum_at=2, nibbles_at=4
    ),
}
