"""IQ1_S and IQ1_M: rows of 8 from a codebook of -1, 0 and 1, moved up or down by an eighth.

IQ1_S has a scale of 3 bits and a direction for 32 elements, IQ1_M a scale for 16 and a direction
for each row. An index has 11 bits. Codes are eighths: 8 * (grid +- 1/8), so that all is exact.
"""

from __future__ import annotations

import numpy as np

from trinity_kernels.quants import codebooks
from trinity_kernels.quants.quant_type import Blocks, Floats, QuantType

# qh: of each 32 elements the upper 3 bits of 4 indices, 3 bits of scale, 1 of direction.
_IQ1_S = np.dtype([("d", "<f2"), ("qs", "u1", 32), ("qh", "<u2", 8)])
# qh: of each 8 elements the upper 3 bits of the index and 1 of direction. scales: of each 64
# elements 4 scales of 3 bits, and 4 bits of the half-precision scale of all, the lowest first.
_IQ1_M = np.dtype([("qs", "u1", 32), ("qh", "u1", 16), ("scales", "<u2", 4)])


def _eighths(index: codebooks.Index, down: codebooks.Index) -> codebooks.Grid:
    """Codes (n, 256) of indices (n, 32) and of directions (n, 32), 0 for up."""
    rows = np.int8(8) * codebooks.IQ1[index]
    codes: codebooks.Grid = rows + np.where(down, np.int8(-1), np.int8(1))[:, :, None]
    return codes.reshape(len(codes), -1)


def _decode_iq1_s(blocks: Blocks) -> Floats:
    d, qh = blocks["d"].astype(np.float32)[:, None], blocks["qh"][:, :, None]
    high = (qh >> np.arange(0, 12, 3, dtype=np.uint16) & 7).reshape(-1, 32)
    scales = d * (2 * (qh[:, :, 0] >> 12 & 7) + 1).astype(np.float32)
    down = np.repeat(qh[:, :, 0] >> 15, 4, axis=1)
    codes = _eighths(blocks["qs"] | high << 8, down)
    return codebooks.scaled(scales * np.float32(0.125), codes)


def _decode_iq1_m(blocks: Blocks) -> Floats:
    nibbles = blocks["qh"][:, :, None] >> np.array([0, 4], np.uint8)
    nibbles = nibbles.reshape(-1, 32).astype(np.uint16)
    codes = _eighths(blocks["qs"] | (nibbles & 7) << 8, nibbles & 8)
    words = blocks["scales"]
    quarters = words >> 12 << np.arange(0, 16, 4, dtype=np.uint16)
    d = np.bitwise_or.reduce(quarters, axis=1)[:, None].view(np.float16).astype(np.float32)
    bits = (words[:, :, None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7).reshape(-1, 16)
    scales = d * (2 * bits + 1).astype(np.float32)
    return codebooks.scaled(scales * np.float32(0.125), codes)


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
        ("IQ1_S", _IQ1_S, _decode_iq1_s, 0.6),
        ("IQ1_M", _IQ1_M, _decode_iq1_m, 0.55),
    )
)
