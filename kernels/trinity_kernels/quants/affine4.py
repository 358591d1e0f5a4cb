"""Unsigned codes of 4 bits in order, each block of 64 or 32 under a scale and a minimum of its own.

A value is scale * code + minimum, as MLX's affine mode, AWQ and GPTQ have it. A byte holds two
neighbours, the first in its lower half: codes lie as MLX has them, and are copied, not rearranged.
Scales and minima are as the model has them, bfloat16, float16 or float32, and may be negative.
Groups of 64 and 128 are blocks of 64. Blocks of 32 are for groups of 32, which AWQ and GPTQ have
too, and for rows that are no whole blocks of 64. No GGUF file has these types. Weights are the
model's own numbers, so activations take 19 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trinity_kernels import memory
from trinity_kernels.quants.affine import STORED, widened
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType

_PREFIXES = {64: "AFFINE4", 32: "AFFINE4_32"}


def block_of(elements: int, stored: str) -> np.dtype[np.void]:
    """A block's layout: 64 or 32 ``elements``, ``stored`` the type of scale and minimum."""
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
class Affine4:
    """How one type's blocks are read.

    ``elements`` of a block, whose codes begin at byte ``codes_at``; ``scales``: what it begins
    with, its scale as "bf16", "f16" or "f32", and at ``minimum_at`` a minimum of the same kind.
    ``code(block, e)``: that of element e, at most ``top``. ``form``: of the activations
    (ops/matmul/activations.py).
    """

    nbytes: int
    elements: int
    codes_at: int
    scales: str
    minimum_at: int
    code: Callable[..., Any]
    form: str = "q19"
    top: int = 15


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
