"""IQ2_XXS, IQ2_XS and IQ2_S: rows of 8 from a codebook of 8, 25 and 43, and their signs.

IQ2_XXS has indices of 8 bits and a scale for 32 elements, IQ2_XS indices of 9 bits and IQ2_S of 10,
both with a scale for 16; scales have 4 bits. IQ2_S has all signs, the others seven of eight.
"""

from __future__ import annotations

import numpy as np

from trinity_kernels.quants import codebooks
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType

# qs: of each 32 elements 4 indices of a byte each, then 4 times 7 signs and the scale.
_IQ2_XXS = np.dtype([("d", "<f2"), ("qs", [("index", "u1", 4), ("signs", "<u4")], 8)])
# qs: of each 8 elements the index, and 7 signs above it.
_IQ2_XS = np.dtype([("d", "<f2"), ("qs", "<u2", 32), ("scales", "u1", 8)])
# qh: of each 32 elements the upper 2 bits of 4 indices.
_IQ2_S = np.dtype(
    [("d", "<f2"), ("qs", "u1", 32), ("signs", "u1", 32), ("qh", "u1", 8), ("scales", "u1", 8)]
)


def _scales(blocks: Blocks) -> Floats:
    """The scales of 16 elements each, (n, 16): d * (bits + 1/2) / 4."""
    bits = blocks["scales"][:, :, None] >> np.array([0, 4], np.uint8) & 15
    d = blocks["d"].astype(np.float32)[:, None]
    scales: Floats = d * (2 * bits.reshape(-1, 16) + 1).astype(np.float32) * np.float32(0.125)
    return scales


def _decode_iq2_xxs(blocks: Blocks) -> Floats:
    index, word = blocks["qs"]["index"].reshape(-1, 32), blocks["qs"]["signs"]
    d = blocks["d"].astype(np.float32)[:, None]
    scales = d * (2 * (word >> 28) + 1).astype(np.float32) * np.float32(0.125)
    signs = word[:, :, None] >> np.arange(0, 28, 7, dtype=np.uint32)
    codes = codebooks.IQ2_XXS[index]
    signs = codebooks.even_signs(signs.reshape(-1, 32))
    return codebooks.scaled(scales, codebooks.signed(codes, signs))


def _decode_iq2_xs(blocks: Blocks) -> Floats:
    codes = codebooks.IQ2_XS[blocks["qs"] & 511]
    signs = codebooks.even_signs(blocks["qs"] >> 9)
    return codebooks.scaled(_scales(blocks), codebooks.signed(codes, signs))


def _decode_iq2_s(blocks: Blocks) -> Floats:
    pairs = blocks["qh"][:, :, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    index = blocks["qs"] | pairs.reshape(-1, 32).astype(np.uint16) << 8
    codes = codebooks.signed(codebooks.IQ2_S[index], blocks["signs"])
    return codebooks.scaled(_scales(blocks), codes)


TYPES = tuple(
    QuantType(
        name=name,
        block_size=256,
        block=block,
        decode_blocks=decode,
        encode_blocks=None,
        max_rmse=max_rmse,
        source=f"ggml-common.h block_{name.lower()}; ggml-quants.c dequantize_row_{name.lower()}",
    )
    for name, block, decode, max_rmse in (
        ("IQ2_XXS", _IQ2_XXS, _decode_iq2_xxs, 0.4),
        ("IQ2_XS", _IQ2_XS, _decode_iq2_xs, 0.35),
        ("IQ2_S", _IQ2_S, _decode_iq2_s, 0.3),
    )
)
