"""The k largest of many numbers; only numbers that reach a bound are sorted.

The numbers are regarded as a table of ``rows`` by ``groups``, and a rest shorter than a row. The
k-th largest of the columns' maxima is a lower bound of the k-th largest number, so only columns
whose maximum reaches it are searched.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity_kernels._jit import entry, inline
from trinity_kernels.memory import get_f32, get_i32, set_i64

# The largest number of rows: more rows give fewer maxima, fewer rows give smaller groups.
_MOST_ROWS = 64


@inline
def _key(value: int, index: int) -> int:
    """An integer with the order of (-value, index): the float's bits, descending, and the index."""
    bits = int(get_i32(value))
    if bits < 0:
        # Magnitudes grow downwards; -0 becomes 0, its equal.
        bits = -(bits + 0x80000000)
    return -bits * 0x100000000 + index


@entry
def _keys_from(
    values: int, size: int, maxima: int, groups: int, rows: int, bound: float, keys: int
) -> int:
    """Write the keys of all values of at least ``bound``, in any order; return their number."""
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
    """The indices of the ``k`` largest values in descending order; equal values by index.

    Shapes: values (n,) contiguous, n < 2**31, without NaN; k from 1 to n.
    """
    size = len(values)
    # At least 2 k groups, because otherwise the k-th maximum would be far too low.
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
