"""IQ3_XXS and IQ3_S: rows of 4 from a codebook of 8 magnitudes, and their signs.

Scales have 4 bits and belong to 32 elements. IQ3_XXS has indices of 8 bits and seven of eight
signs, IQ3_S indices of 9 bits and all signs.
"""

from __future__ import annotations

import numpy as np

from trinity_kernels.quants import codebooks
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType

# signs: of each 32 elements 4 times 7 signs and the scale.
_IQ3_XXS = np.dtype([("d", "<f2"), ("qs", "u1", 64), ("signs", "<u4", 8)])
# qh: of each 32 elements the ninth bits of 8 indices.
_IQ3_S = np.dtype(
    [("d", "<f2"), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32), ("scales", "u1", 4)]
)


def _decode_iq3_xxs(blocks: Blocks) -> Floats:
    word = blocks["signs"]
    d = blocks["d"].astype(np.float32)[:, None]
    scales = d * (2 * (word >> 28) + 1).astype(np.float32) * np.float32(0.25)
    signs = word[:, :, None] >> np.arange(0, 28, 7, dtype=np.uint32)
    signs = codebooks.even_signs(signs.reshape(-1, 32))
    codes = codebooks.signed(codebooks.IQ3_XXS[blocks["qs"]], signs)
    return codebooks.scaled(scales, codes)


def _decode_iq3_s(blocks: Blocks) -> Floats:
    ninth = np.unpackbits(blocks["qh"], axis=1, bitorder="little")
    index = blocks["qs"] | ninth.astype(np.uint16) << 8
    codes = codebooks.signed(codebooks.IQ3_S[index], blocks["signs"])
    bits = blocks["scales"][:, :, None] >> np.array([0, 4], np.uint8) & 15
    d = blocks["d"].astype(np.float32)[:, None]
    scales = d * (2 * bits.reshape(-1, 8) + 1).astype(np.float32)
    return codebooks.scaled(scales, codes)


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
        ("IQ3_XXS", _IQ3_XXS, _decode_iq3_xxs, 0.22),
        ("IQ3_S", _IQ3_S, _decode_iq3_s, 0.17),
    )
)
