"""The plan's record: 32 numbers of 8 bytes that name a kernel, its operands and its sizes.

Slots 0 to 2 mean the same in every record; the rest belong to the operation, whose file names them.
"""

from __future__ import annotations

import numpy as np

SLOTS = 32
RECORD_BYTES = 8 * SLOTS

KERNEL = 0  # address of the compiled kernel
BARRIER = 1  # 1: all threads meet after this record
ROWS = 2  # address of an int64: how many rows (tokens) to work on

RECORD = np.dtype([("slots", np.int64, SLOTS)])


def float_bits(value: float) -> int:
    """A float as the slot holds it: the bits of its float64."""
    return int(np.float64(value).view(np.int64))
