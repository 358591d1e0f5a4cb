"""STQ1_0 (Sherry): of four weights one is 0, the others are -d or +d; converted to PQ2_0.

A block of 256 weights has 64 codes of 4 bits (32 bytes), 64 signs (8 bytes) and a float16 scale d.
Weight w belongs to group 16 * (w // 64) + w % 16, as lane w % 64 // 16. A group's sign and code are
an index into a table of four values + 1 of 2 bits. The two blocks of PQ2_0 have the same values;
they take 68 bytes instead of 42, and need no kernels of their own.
Source: llama.cpp's pull request 22836, ggml-quants.c dequantize_row_stq1_0.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from trinity.formats.provider import Tensor

BLOCK, BLOCK_BYTES = 256, 42
_TABLE = np.frombuffer(
    bytes.fromhex(
        "A9892909A68626069A921A126A624A42"  # without a sign
        "012181A1042484A41018909840486068"  # with one: all values negated
    ),
    np.uint8,
)
# Two groups, by the byte of their codes and, above it, two signs.
_INDEX = np.arange(1024)
_PAIRS = _TABLE[_INDEX >> 8 << 4 & 16 | _INDEX & 15] + (
    _TABLE[_INDEX >> 9 << 4 | _INDEX >> 4 & 15].astype(np.uint16) << 8
)
_PQ2_0 = np.dtype([("d", "<f2"), ("qs", "u1", 32)])
_STEP = 1 << 10  # blocks at a time, so that temporaries stay in the second-level cache


def to_pq2_0(tensor: Tensor) -> Tensor:
    """Return a copy of an STQ1_0 tensor as PQ2_0."""
    count = prod(tensor.shape) // BLOCK
    source = tensor.data[: count * BLOCK_BYTES].reshape(count, BLOCK_BYTES)
    out = np.empty((count, 2), _PQ2_0)
    for first in range(0, count, _STEP):
        blocks = source[first : first + _STEP]
        part = out[first : first + _STEP]
        part["qs"] = _codes(blocks).reshape(-1, 2, 32)
        part["d"] = np.ascontiguousarray(blocks[:, 40:]).view("<f2")
    return Tensor(tensor.name, tensor.shape, "PQ2_0", out.reshape(-1).view(np.uint8), tensor.source)


def _codes(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The codes of blocks (n, 42) in order, four in a byte, (n, 64)."""
    signs = blocks[:, 32:40, None] >> np.array([0, 2, 4, 6], np.uint8) & 3
    groups = _PAIRS[signs.reshape(-1, 32).astype(np.uint16) << 8 | blocks[:, :32]]
    # Four groups in a word, and for each lane their four values moved together into a byte.
    words = groups.view("<u4").reshape(-1, 4, 1, 4)
    lanes = words >> np.array([0, 2, 4, 6], "<u4")[:, None]
    lanes &= 0x03030303
    lanes |= lanes >> 6
    lanes |= lanes >> 12
    codes: NDArray[np.uint8] = lanes.astype(np.uint8).reshape(-1, 64)
    return codes
