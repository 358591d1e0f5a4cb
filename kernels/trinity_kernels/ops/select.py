"""The k largest of many numbers, without sorting them all: what reaches a bound is sorted.

The numbers stand in a table of ``rows`` by ``groups``, row by row, with a rest of less than a row
behind it. The k-th largest of the groups' maxima bounds the k-th largest number from below, and
only groups whose maximum reaches it are looked at.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity_kernels._jit import entry, inline
from trinity_kernels.memory import get_f32, get_i32, set_i64

# Rows of the table at most: more make for fewer maxima, less for smaller groups.
_MOST_ROWS = 64


@inline
def _key(value: int, index: int) -> int:
    """An integer that orders as (-value, index) does: the float's bits, falling, then the index."""
    bits = int(get_i32(value))
    if bits < 0:
        # Magnitudes grow downwards; -0 becomes 0, its equal.
        bits = -(bits + 0x80000000)
    return -bits * 0x100000000 + index


@entry
def _keys_from(
    values: int, size: int, maxima: int, groups: int, rows: int, bound: float, keys: int
) -> int:
    """Write the keys of all values of at least ``bound``, in any order; how many there are."""
    limit = np.float32(bound)
    count = 0
    for group in range(groups):
        if get_f32(maxima + 4 * group) >= limit:
            for row in range(rows):
                i = row * groups + group
                if get_f32(values + 4 * i) >= limit:
                    set_i64(keys + 8 * count, _key(values + 4 * i, i))
                    count += 1
    for i in range(rows * groups, size):
        if get_f32(values + 4 * i) >= limit:
            set_i64(keys + 8 * count, _key(values + 4 * i, i))
            count += 1
    return count


def largest(values: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Indices of the ``k`` largest values, the largest first; equal ones by index.

    Shapes: values (n,) contiguous, n < 2**31, without NaN; k from 1 to n.
    """
    size = len(values)
    # Twice as many groups as wanted, at least, or their k-th maximum would be far too low.
    rows = min(_MOST_ROWS, max(1, size // (2 * k)))
    groups = size // rows
    maxima = values[: rows * groups]
    if rows > 1:
        maxima = maxima.reshape(rows, groups).max(axis=0)
    bound = float(np.partition(maxima, groups - k)[groups - k])
    keys = np.empty(size, np.int64)
    count = _keys_from(
        values.ctypes.data, size, maxima.ctypes.data, groups, rows, bound, keys.ctypes.data
    )
    found: NDArray[np.int64] = np.sort(keys[:count])[:k] & np.int64(0xFFFFFFFF)
    return found
