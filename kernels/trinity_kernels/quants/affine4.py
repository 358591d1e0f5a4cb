"""Affine types of 4 bits (MLX, AWQ, GPTQ): blocks of 64 or 32 with a scale and a minimum.

A value is scale * code + minimum. A byte holds two neighbours, the first in its low half, as in
MLX's files, so codes are copied without rearranging. Scales and minima keep the model's type
(bfloat16, float16 or float32) and may be negative. Groups of 64 and 128 become blocks of 64; blocks
of 32 serve groups of 32 and rows that are not multiples of 64. GGUF has no such types. The weights
are exactly the model's numbers, so activations have 19 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.quants.affine import STORED, widened
from trinity_kernels.quants.one_scale import OneScale
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType

_PREFIXES = {64: "AFFINE4", 32: "AFFINE4_32"}


def block_of(elements: int, stored: str) -> np.dtype[np.void]:
    """The layout of a block of 64 or 32 elements; ``stored``: the type of scale and minimum."""
    return np.dtype([("d", STORED[stored]), ("m", STORED[stored]), ("qs", "u1", elements // 2)])


def _decoder(elements: int, stored: str) -> Callable[[Blocks], Floats]:
    def decode(blocks: Blocks) -> Floats:
        packed = blocks["qs"]
        codes = np.empty((len(blocks), elements), np.float32)
        codes[:, 0::2], codes[:, 1::2] = packed & np.uint8(15), packed >> np.uint8(4)
        d, m = widened(stored, blocks["d"]), widened(stored, blocks["m"])
        values: Floats = d[:, None] * codes + m[:, None]
        return values

    return decode


TYPES = tuple(
    QuantType(
        name=f"{prefix}_{stored}",
        block_size=elements,
        block=block_of(elements, stored),
        decode_blocks=_decoder(elements, stored),
        encode_blocks=None,
        max_rmse=0.0,
        source="MLX's mx.quantize, mode affine: w = scale * q + bias",
    )
    for elements, prefix in _PREFIXES.items()
    for stored in STORED
)

# -- how compiled code reads it --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine4(OneScale):
    """How a type's blocks are read."""

    form: str = "q19"
    top: int = 15
    # Byte of a block at which the codes begin.
    codes_at: int
    # code(block, e): the code of element e.
    code: Callable[..., Any]

    @property
    def in_order(self) -> bool:
        """The low half of a byte is the element before that of the high half."""
        return True


def _reader(elements: int, stored: str) -> Affine4:
    nbytes = block_of(elements, stored).itemsize
    at = nbytes - elements // 2

    def code(block: int, e: int) -> Any:
        return (int(memory.get_u8(block + at + e // 2)) >> (e % 2 * 4)) & 15

    return Affine4(
        nbytes=nbytes, elements=elements, codes_at=at, scales=stored.lower(), minimum_at=at // 2,
        code=code,
    )  # fmt: skip


READERS = {
    f"{prefix}_{stored}": _reader(elements, stored)
    for elements, prefix in _PREFIXES.items()
    for stored in STORED
}
