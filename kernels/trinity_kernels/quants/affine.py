"""Unsigned codes of 4 or 8 bits, each block of 32 with a scale and a minimum of its own.

A value is scale * code + minimum, as MLX's affine mode, AWQ and GPTQ have it. Scales and minima
are as the model has them, bfloat16, float16 or float32, and may be negative. No GGUF file has these
types. Codes of 4 bits lie as in Q4_1. Weights are the model's own numbers, so activations take 19
bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.isa import jit_disabled
from trinity_kernels.quants.block32 import Block32
from trinity_kernels.quants.q4 import unpack_nibbles
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType

if not jit_disabled():
    from trinity_kernels import simd
    from trinity_kernels.quants.block32 import load_nibbles

_STORED = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}


def block_of(bits: int, stored: str) -> np.dtype[np.void]:
    """A block's layout: ``bits`` 4 or 8, ``stored`` the type of scale and minimum."""
    return np.dtype([("d", _STORED[stored]), ("m", _STORED[stored]), ("qs", "u1", 4 * bits)])


def _widened(stored: str, values: Any) -> Floats:
    if stored == "BF16":
        bits: Floats = (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return bits
    return np.asarray(values, np.float32)


def _decoder(bits: int, stored: str) -> Callable[[Blocks], Floats]:
    def decode(blocks: Blocks) -> Floats:
        codes = unpack_nibbles(blocks["qs"]) if bits == 4 else blocks["qs"]
        d, m = _widened(stored, blocks["d"]), _widened(stored, blocks["m"])
        values: Floats = d[:, None] * codes.astype(np.float32) + m[:, None]
        return values

    return decode


TYPES = tuple(
    QuantType(
        name=f"AFFINE{bits}_{stored}",
        block_size=32,
        block=block_of(bits, stored),
        decode_blocks=_decoder(bits, stored),
        encode_blocks=None,
        max_rmse=0.0,
        source="MLX's mx.quantize, mode affine: w = scale * q + bias",
    )
    for bits in (4, 8)
    for stored in _STORED
)

# -- how compiled code reads it --------------------------------------------------------------------


def _nibbles(at: int) -> Block32:
    """Of nibbles that lie ``at`` bytes into a block, behind a scale and a minimum."""

    def code(block: int, e: int) -> Any:
        return (int(memory.get_u8(block + at + e % 16)) >> (e // 16 * 4)) & 15

    def codes(isa: Any, first: int, second: int) -> Any:
        return load_nibbles(first + at, second + at if second != 0 else 0)

    return Block32(
        nbytes=at + 16, codes=codes, code=code, form="q19", top=15, minimum_at=at // 2,
        nibbles_at=at,
    )  # fmt: skip


def _bytes(at: int) -> Block32:
    """Of bytes that lie ``at`` bytes into a block."""

    def code(block: int, e: int) -> Any:
        return int(memory.get_u8(block + at + e))

    def codes(isa: Any, first: int, second: int) -> Any:
        low = simd.load_i8x32(first + at)
        if second == 0:
            return simd.concat_i8x32(low, simd.splat_i8x32(0))
        return simd.concat_i8x32(low, simd.load_i8x32(second + at))

    return Block32(nbytes=at + 32, codes=codes, code=code, form="q19", top=255, minimum_at=at // 2)


READERS = {
    f"AFFINE{bits}_{stored}": replace(reader(2 * width), scales=stored.lower())
    for bits, reader in ((4, _nibbles), (8, _bytes))
    for stored, width in (("BF16", 2), ("F16", 2), ("F32", 4))
}
