"""FP8: floating-point codes of eight bits (E4M3), 32 under a float32 scale.

The type is trinity's own: no GGUF file has it. Checkpoints hold such codes under one scale for a
block of a matrix, a row or the whole; each block of 32 repeats it, 36 bytes in all. Values of one
block reach from 2**-9 to 448, too far apart for integers, so they are multiplied as floats.
"""

from __future__ import annotations

import numpy as np

from trinity_kernels.quants.quant_type import Blocks, Bytes, Floats, QuantType

_FP8 = np.dtype([("d", "<f4"), ("qs", "u1", 32)])
_LARGEST = 448


def e4m3(codes: Bytes) -> Floats:
    """What E4M3 says: a sign, 4 bits of exponent, 3 of mantissa; 0x7F and 0xFF are NaN."""
    bits = codes.astype(np.uint32)
    # As a float32 with an exponent 120 too low, which also makes subnormal codes right.
    shifted = (bits & np.uint32(0x7F)) << np.uint32(20) | (bits & np.uint32(0x80)) << np.uint32(24)
    values = shifted.view(np.float32) * np.float32(2.0**120)
    result: Floats = np.where((codes & np.uint8(0x7F)) == 0x7F, np.float32(np.nan), values)
    return result


_VALUES = e4m3(np.arange(256, dtype=np.uint8))
# Where the next larger magnitude becomes the nearer one.
_MIDDLES = (_VALUES[:126] + _VALUES[1:127]) / np.float32(2)


def _nearest(scaled: Floats) -> Bytes:
    """The codes of the nearest values, of two equally near ones the even code."""
    magnitude = np.abs(scaled)
    low, high = (np.searchsorted(_MIDDLES, magnitude, side=side) for side in ("left", "right"))
    codes = np.where(low % 2 == 0, low, high).astype(np.uint8)
    return np.where(np.signbit(scaled), codes | np.uint8(0x80), codes)


def _decode(blocks: Blocks) -> Floats:
    values: Floats = blocks["d"][:, None] * _VALUES[blocks["qs"]]
    return values


def _encode(values: Floats) -> Blocks:
    scales = np.abs(values).max(axis=1) / np.float32(_LARGEST)
    divisors: Floats = np.where(scales == 0, np.float32(1), scales)
    blocks = np.empty(len(values), _FP8)
    blocks["d"] = scales
    blocks["qs"] = _nearest(values / divisors[:, None])
    return blocks


TYPES = (
    QuantType(
        name="FP8",
        block_size=32,
        block=_FP8,
        decode_blocks=_decode,
        encode_blocks=_encode,
        max_rmse=0.03,
        source="OCP 8-bit Floating Point Specification 1.0 (E4M3)",
    ),
)
