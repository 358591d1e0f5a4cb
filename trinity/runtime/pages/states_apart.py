"""Recurrent states after single rows of a step, of which one is chosen afterwards.

A page has room for one state. If it is not known how many rows of a step will stay, the state after
each row but the last is written to separate memory. The state after the last row that stays is then
exchanged into the page: nothing is copied or computed twice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.pages.page import Page, Part
from trinity.runtime.pages.page_pool import PagePool
from trinity_kernels.ops.kv_layout import PAGE

MOST_APART = 4  # rows; states are large


class StatesApart:
    """Memory of one KV cache for the states after all rows of a step but its last one."""

    def __init__(self, pool: PagePool, kv_type: str) -> None:
        self.parts: list[Part] = []
        self._pool = pool
        self._kv_type = kv_type
        self._start = -1  # the position of the first row
        self._addresses = np.zeros(MOST_APART, np.int64)

    def resize(self, count: int, start: int) -> bool:
        """Make room for ``count`` rows from position ``start`` on; False, with no room kept, if
        there is none.
        """
        self._start = start
        while len(self.parts) > count:
            self._pool.give_back_apart(self.parts.pop())
        while len(self.parts) < count:
            part = self._pool.take_apart(self._kv_type)
            if part is None:
                self.resize(0, start)
                return False
            self._addresses[len(self.parts)] = part.address
            self.parts.append(part)
        return True

    def spread(self, tables: NDArray[np.int64]) -> None:
        """Write where each row reads and writes its state, (rows, 2); there is one row more than
        parts.

        The rows must be in one page.
        """
        # Kernels index a table by page; shifted back by the page's index, each address acts as a
        # table.
        first = int(self._addresses.ctypes.data) - 8 * (self._start // PAGE)
        for row in range(len(self.parts)):
            tables[row, 1] = tables[row + 1, 0] = first + 8 * row

    def choose(self, page: Page, length: int, end: int) -> bool:
        """Make the state after ``length`` positions that of the page, which has the one after
        ``end``.

        False if the newest step did not keep it.
        """
        if end != self._start + len(self.parts) + 1 or not self._start < length < end:
            return False
        row = length - self._start - 1
        assert page.windowed is not None
        page.windowed, self.parts[row] = self.parts[row], page.windowed
        self._addresses[row] = self.parts[row].address
        self._start = -1
        return True
