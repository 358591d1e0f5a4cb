"""Affine types of 8 bits (MLX, GPTQ): blocks of 32 unsigned codes with a scale and a minimum.

A value is scale * code + minimum. Scales and minima keep the model's type (bfloat16, float16 or
float32) and may be negative. GGUF has no such types. The weights are exactly the model's numbers,
so activations have 19 bits. Codes of 4 bits are in affine4.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.deferred import simd
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType

# The types of scales and minima, and their NumPy types in a block.
STORED = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}


def block_of(stored: str) -> np.dtype[np.void]:
    """The layout of a block; ``stored``: the type of scale and minimum."""
    return np.dtype([("d", STORED[stored]), ("m", STORED[stored]), ("qs", "u1", 32)])


def widened(stored: str, values: Any) -> Floats:
    """Scales or minima as float32."""
    if stored == "BF16":
        bits: Floats = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return bits
    return np.asarray(values, np.float32)


def _decoder(stored: str) -> Callable[[Blocks], Floats]:
    def decode(blocks: Blocks) -> Floats:
        d, m = widened(stored, blocks["d"]), widened(stored, blocks["m"])
        values: Floats = d[:, None] * blocks["qs"].astype(np.float32) + m[:, None]
        return values

    return decode


TYPES = tuple(
    QuantType(
        name=f"AFFINE8_{stored}",
        block_size=32,
        block=block_of(stored),
        decode_blocks=_decoder(stored),
        encode_blocks=None,
        max_rmse=0.0,
        source="MLX's mx.quantize, mode affine: w = scale * q + bias",
    )
    for stored in STORED
)

# -- how compiled code reads it --------------------------------------------------------------------


def _reader(stored: str) -> Block32:
    nbytes = block_of(stored).itemsize
    at = nbytes - 32

    def code(block: int, e: int) -> Any:
        return int(memory.get_u8(block + at + e))

    def codes(isa: Any, first: int, second: int) -> Any:
        low = simd.load_i8x32(first + at)
        if second == 0:
            return simd.concat_i8x32(low, simd.splat_i8x32(0))
        return simd.concat_i8x32(low, simd.load_i8x32(second + at))

    return Block32(
        nbytes=nbytes, codes=codes, code=code, form="q19", top=255, scales=stored.lower(),
        minimum_at=at // 2,
    )  # fmt: skip


READERS = {f"AFFINE8_{stored}": _reader(stored) for stored in STORED}
