"""Blocks of codebook types, written by hand from the layouts, and their values."""

from __future__ import annotations

import numpy as np

HALF = np.float16(0.5).tobytes()


def known_codebook_blocks() -> dict[str, tuple[bytes, list[float]]]:
    """Return a block and its values by type, with the first and last rows of codebooks."""
    return {
        # Row 0 of a codebook has its lowest value throughout, row 1 its highest one in front.
        # Indices 0 1 0 0, the first sign and so the eighth, scale 7/2; then zeros, scale 1/2.
        "IQ2_XXS": (
            HALF + bytes([0, 1, 0, 0]) + (1 | 3 << 28).to_bytes(4, "little") + bytes(56),
            [v * 7 / 16 for v in (-8, *[8] * 6, -8, 43, *[8] * 23)] + [0.5] * 224,
        ),
        # Index 1 and the second sign, so the eighth; scales 7/2 and 1/2.
        "IQ2_XS": (
            HALF + (1 | 2 << 9).to_bytes(2, "little") + bytes(62) + b"\x03" + bytes(7),
            [v * 7 / 16 for v in (43, -8, *[8] * 5, -8, *[8] * 8)] + [0.5] * 240,
        ),
        # Indices 1 and 3 * 256 + 255, the last row, highest throughout; all signs of the second.
        "IQ2_S": (
            HALF
            + bytes([1, 255]) + bytes(30)
            + bytes([0, 255]) + bytes(30)
            + b"\x0c" + bytes(7)
            + b"\x03" + bytes(7),
            [v * 7 / 16 for v in (43, *[8] * 7, *[-43] * 8)] + [0.5] * 240,
        ),
        # Row 1: the third value in front. The eight signs of 32 elements belong to rows in pairs.
        "IQ3_XXS": (
            HALF + bytes([1]) + bytes(63) + (1 | 3 << 28).to_bytes(4, "little") + bytes(28),
            [v * 7 / 8 for v in (-20, *[4] * 6, -4, *[4] * 24)] + [0.5] * 224,
        ),
        # Row 1: the second value in front; row 511: 1 1 15 15. Scales 7 and 1.
        "IQ3_S": (
            HALF
            + bytes([1, 255]) + bytes(62)
            + b"\x02" + bytes(7)
            + b"\x82" + bytes(31)
            + b"\x03" + bytes(3),
            [v * 7 / 2 for v in (3, -1, 1, 1, 1, 1, 15, -15, *[1] * 24)] + [0.5] * 224,
        ),
        # Rows 1 (1 in front), 2047 (all 1) and 0 (all -1); scale 7 down, then 1 up.
        "IQ1_S": (
            HALF
            + bytes([1, 255]) + bytes(30)
            + (7 << 3 | 3 << 12 | 1 << 15).to_bytes(2, "little") + bytes(14),
            [v * 7 / 2 for v in (0.875, *[-1.125] * 7, *[0.875] * 8, *[-1.125] * 16)]
            + [-0.4375] * 224,
        ),
        # The same, the second row up. Scales 7, 3 and 1; the scale of all, 0x3800, in quarters.
        "IQ1_M": (
            bytes([1, 255]) + bytes(30)
            + b"\x78" + bytes(15)
            + b"".join(v.to_bytes(2, "little") for v in (3 | 1 << 3, 0, 0x8000, 0x3000)),
            [v * 7 / 2 for v in (0.875, *[-1.125] * 7, *[1.125] * 8)]
            + [-0.875 * 1.5] * 16
            + [-0.4375] * 224,
        ),
    }  # fmt: skip
