"""Blocks with several scales, written by hand from the layouts, and their values."""

from __future__ import annotations

import numpy as np

HALF, QUARTER = np.float16(0.5).tobytes(), np.float16(0.25).tobytes()
PAIRS = 0b11_10_01_00  # two bits each: 0 1 2 3
NIBBLES = [i | (15 - i) << 4 for i in range(16)]  # 0 to 15 in the low ones, 15 to 0 in the high
IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
DOUBLED_FP4 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]


def _q2_k() -> tuple[bytes, list[float]]:
    """Group g has the scale g and the minimum 15 - g."""
    data = bytes([g | (15 - g) << 4 for g in range(16)]) + bytes([PAIRS]) * 64 + HALF + QUARTER
    return data, [0.5 * (e // 16) * (e // 32 % 4) - 0.25 * (15 - e // 16) for e in range(256)]


def _q3_k() -> tuple[bytes, list[float]]:
    """Group g has the scale g + 16 * (g // 4) - 32; the third bit is set in every other 32."""
    scales = [i | (i + 8) << 4 for i in range(8)] + [PAIRS] * 4
    data = bytes([0b10101010]) * 32 + bytes([PAIRS]) * 64 + bytes(scales) + HALF
    return data, [
        0.5 * (e // 16 + 16 * (e // 64) - 32) * (e // 32 % 4 + 4 * (e // 32 % 2) - 4)
        for e in range(256)
    ]


# Scales 10 + g for g < 4, then 16 * (g - 4) + g; minima 20 + g, then 16 * (7 - g) + g + 1.
_SIX_BITS = (
    [10 + i | i << 6 for i in range(4)]
    + [20 + i | (3 - i) << 6 for i in range(4)]
    + [4 + i | (5 + i) << 4 for i in range(4)]
)
_SCALES = [10 + g if g < 4 else 16 * (g - 4) + g for g in range(8)]
_MINIMA = [20 + g if g < 4 else 16 * (7 - g) + g + 1 for g in range(8)]


def _q4_k() -> tuple[bytes, list[float]]:
    data = HALF + QUARTER + bytes(_SIX_BITS) + bytes(NIBBLES * 8)
    return data, [
        0.5 * _SCALES[g] * (e % 16 if g % 2 == 0 else 15 - e % 16) - 0.25 * _MINIMA[g]
        for g in range(8)
        for e in range(32)
    ]


def _q5_k() -> tuple[bytes, list[float]]:
    """The fifth bit is set in groups 0, 3, 5 and 6."""
    data = HALF + QUARTER + bytes(_SIX_BITS) + bytes([0b01101001]) * 32 + bytes(NIBBLES * 8)
    return data, [
        0.5 * _SCALES[g] * ((e % 16 if g % 2 == 0 else 15 - e % 16) + 16 * (g in (0, 3, 5, 6)))
        - 0.25 * _MINIMA[g]
        for g in range(8)
        for e in range(32)
    ]


def _q6_k() -> tuple[bytes, list[float]]:
    """Group g has the scale g - 8; the upper two bits are 0, 1, 2, 3 in every 32 elements."""
    scales = bytes([(g - 8) % 256 for g in range(16)])
    data = bytes(NIBBLES * 8) + bytes([PAIRS]) * 64 + scales + HALF
    return data, [
        0.5
        * (e // 16 - 8)
        * ((e % 16 if e // 64 % 2 == 0 else 15 - e % 16) + 16 * (e // 32 % 4) - 32)
        for e in range(256)
    ]


def _iq4_xs() -> tuple[bytes, list[float]]:
    """Group g has the scale 2 g + 16 * (g % 4) - 32."""
    low = [2 * g & 15 for g in range(8)]
    high = sum((2 * g // 16 + g % 4 & 3) << 2 * g for g in range(8))
    nibbles = bytes(low[i] | low[i + 1] << 4 for i in range(0, 8, 2))
    data = HALF + high.to_bytes(2, "little") + nibbles + bytes(NIBBLES * 8)
    return data, [
        0.5 * (2 * g + 16 * (g % 4) - 32) * IQ4[e % 16 if e < 16 else 15 - e % 16]
        for g in range(8)
        for e in range(32)
    ]


def known_super_blocks() -> dict[str, tuple[bytes, list[float]]]:
    """Return the bytes of a block and its values by type."""
    numbers = range(-128, 128)
    return {
        "I8": (b"\x05\xff", [5.0, -1.0]),
        "I16": (b"\x05\x01\xff\xff", [261.0, -1.0]),
        "I32": (b"\x05\x01\x00\x00\xff\xff\xff\xff", [261.0, -1.0]),
        "I64": (b"\x05\x01" + bytes(6) + b"\xff" * 8, [261.0, -1.0]),
        "F64": (np.array([1.5, -2], np.float64).tobytes(), [1.5, -2.0]),
        "Q8_1": (HALF + QUARTER + bytes(range(240, 256)) + bytes(16),
                 [-8 + i / 2 for i in range(16)] + [0.0] * 16),
        "Q8_K": (np.float32(0.75).tobytes() + bytes(n % 256 for n in numbers) + bytes(32),
                 [0.75 * n for n in numbers]),
        "Q2_K": _q2_k(), "Q3_K": _q3_k(), "Q4_K": _q4_k(), "Q5_K": _q5_k(), "Q6_K": _q6_k(),
        "IQ4_NL": (HALF + bytes(NIBBLES), [v / 2 for v in IQ4 + IQ4[::-1]]),
        "IQ4_XS": _iq4_xs(),
        # 2**(129 - 128), and half of 1.25 * 2**(8 - 7).
        "MXFP4": (bytes([129, *NIBBLES]), [2.0 * v for v in DOUBLED_FP4 + DOUBLED_FP4[::-1]]),
        "NVFP4": (bytes([8 << 3 | 2, 8 << 3 | 2, 0, 0x7F]) + bytes(NIBBLES[:8] * 4),
                  [1.25 * v for v in DOUBLED_FP4[:8] + DOUBLED_FP4[:7:-1]] * 2 + [0.0] * 32),
        "Q1_0": (HALF + bytes([0b00000101]) * 16, [0.5, -0.5, 0.5, *[-0.5] * 5] * 16),
        "Q2_0": (HALF + bytes([PAIRS]) * 16, [-0.5, 0.0, 0.5, 1.0] * 16),
        "Q2_0_G128": (HALF + bytes([PAIRS]) * 32, [-0.5, 0.0, 0.5, 1.0] * 32),
        "PQ2_0": (HALF + bytes([PAIRS]) * 32, [-0.5, 0.0, 0.5, 1.0] * 32),
    }  # fmt: skip
