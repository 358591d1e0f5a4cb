"""Q8_0: 32 signed bytes and a half-precision scale.

Q8_1, which also has the sum of its values, is ggml's type for activations: it is decoded, but
products do not take it as a weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.deferred import simd
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.quants.quant_type import (
    Blocks,
    Floats,
    QuantType,
    inverse,
    round_half_away,
)

_Q8_0 = np.dtype([("d", "<f2"), ("qs", "i1", 32)])
_Q8_1 = np.dtype([("d", "<f2"), ("s", "<f2"), ("qs", "i1", 32)])


def _decode(blocks: Blocks) -> Floats:
    d = blocks["d"].astype(np.float32)[:, None]
    values: Floats = blocks["qs"].astype(np.float32) * d
    return values


def _encode(values: Floats) -> Blocks:
    d = np.abs(values).max(axis=1)[:, None] / np.float32(127)
    blocks = np.empty(len(values), _Q8_0)
    blocks["d"] = d[:, 0]
    blocks["qs"] = round_half_away(values * inverse(d)).astype(np.int8)
    return blocks


def _decode_q8_1(blocks: Blocks) -> Floats:
    values: Floats = blocks["qs"].astype(np.float32) * blocks["d"].astype(np.float32)[:, None]
    return values


def _encode_q8_1(values: Floats) -> Blocks:
    plain = _encode(values)
    d = np.abs(values).max(axis=1) / np.float32(127)
    blocks = np.empty(len(values), _Q8_1)
    blocks["d"], blocks["qs"] = plain["d"], plain["qs"]
    blocks["s"] = d * plain["qs"].sum(axis=1, dtype=np.int32).astype(np.float32)
    return blocks


TYPES = (
    QuantType(
        name="Q8_0",
        block_size=32,
        block=_Q8_0,
        decode_blocks=_decode,
        encode_blocks=_encode,
        max_rmse=6e-3,
        source="ggml-common.h block_q8_0; ggml-quants.c quantize_row_q8_0_ref",
    ),
    QuantType(
        name="Q8_1",
        block_size=32,
        block=_Q8_1,
        decode_blocks=_decode_q8_1,
        encode_blocks=_encode_q8_1,
        max_rmse=6e-3,
        source="ggml-common.h block_q8_1; ggml-quants.c quantize_row_q8_1_ref",
    ),
)

# -- how compiled code reads it --------------------------------------------------------------------


def _code_q8_0(block: int, j: int) -> Any:
    return int(memory.get_i8(block + 2 + j))


def _codes_q8_0(isa: Any, first: int, second: int) -> Any:
    low = simd.load_i8x32(first + 2)
    if second == 0:
        return simd.concat_i8x32(low, simd.splat_i8x32(0))
    return simd.concat_i8x32(low, simd.load_i8x32(second + 2))


READERS = {
    "Q8_0": Block32(nbytes=34, codes=_codes_q8_0, code=_code_q8_0, signed=True, bytes_at=2),
}
