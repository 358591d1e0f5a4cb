"""A growing list of records, and how records name rows of a buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import record as slots
from trinity_kernels._jit import Kernel

Address = Callable[[Kernel, str], int]


class RowsView(NamedTuple):
    """Rows of a buffer, as records name them."""

    address: int
    """The first byte of the first row."""
    stride: int
    """Bytes from one row to the next."""

    def after(self, nbytes: int) -> RowsView:
        """The same rows without their first ``nbytes`` bytes."""
        return RowsView(self.address + nbytes, self.stride)

    def heads(self, count: int, nbytes: int) -> list[RowsView]:
        """``count`` views of the rows, each ``nbytes`` after the one before."""
        return [self.after(nbytes * head) for head in range(count)]

    def slots(self, address: int, stride: int) -> dict[int, int]:
        """The values of a record's slots for the address and the stride."""
        return {address: self.address, stride: self.stride}


class RecordList:
    """Appends records to ``records``.

    ``address`` gives the address of a kernel's machine code. ``rows`` is an int64 array of one
    value, the number of rows that records work on; kernels read it when the plan runs.
    """

    def __init__(self, address: Address, rows: NDArray[np.int64]) -> None:
        self.kernel_address = address
        self.rows = rows
        self.records: list[NDArray[np.int64]] = []

    def record(
        self, kernel: Kernel, tag: str, values: dict[int, int], *, barrier: bool = True,
        rows: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
        """Append one record.

        ``values``: its slots. ``barrier``: all threads wait for each other after it. ``rows``
        replaces the list's own.
        """
        row = np.zeros(slots.SLOTS, np.int64)
        row[slots.KERNEL] = self.kernel_address(kernel, tag)
        row[slots.BARRIER] = barrier
        row[slots.ROWS] = (self.rows if rows is None else rows).ctypes.data
        for slot, value in values.items():
            row[slot] = value
        self.records.append(row)
