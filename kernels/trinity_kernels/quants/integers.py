"""I8 to I64 and F64: plain numbers in files; products do not take them as weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType


def _decode(blocks: Blocks) -> Floats:
    values: Floats = blocks["x"].astype(np.float32)[:, None]
    return values


def _encoder(block: np.dtype[np.void]) -> Callable[[Floats], Blocks]:
    def encode(values: Floats) -> Blocks:
        plain = block["x"]
        rounded = values[:, 0] if plain.kind == "f" else np.rint(values[:, 0])
        return rounded.astype(plain).view(block)

    return encode


def _type(name: str, plain: str) -> QuantType:
    block = np.dtype([("x", plain)])
    return QuantType(
        name=name,
        block_size=1,
        block=block,
        decode_blocks=_decode,
        encode_blocks=_encoder(block),
        max_rmse=0.0 if plain == "<f8" else 0.3,
        source="two's complement" if plain != "<f8" else "IEEE 754 binary64",
    )


TYPES = (
    _type("I8", "i1"), _type("I16", "<i2"), _type("I32", "<i4"), _type("I64", "<i8"),
    _type("F64", "<f8"),
)  # fmt: skip
