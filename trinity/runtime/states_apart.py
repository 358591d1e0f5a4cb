"""The recurrent states behind single rows of a step, one of which is chosen afterwards.

A page has room for one state. Where it is not known how many rows of a step will stay, the state
behind each but the last goes to memory of its own, and that of the row that stays last becomes the
page's: nothing is copied, and nothing evaluated twice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.page import Page, Part
from trinity.runtime.page_pool import PagePool
from trinity_kernels.ops.kv_layout import PAGE

MOST_APART = 4  # rows: states are large


class StatesApart:
    """Memory of one cache for the states behind the rows before a step's last one."""

    def __init__(self, pool: PagePool, kv_type: str) -> None:
        self.parts: list[Part] = []
        self._pool = pool
        self._kv_type = kv_type
        self._start = -1  # the first row's position
        self._addresses = np.zeros(MOST_APART, np.int64)

    def resize(self, count: int, start: int) -> bool:
        """Have room for ``count`` rows from position ``start``; False, with none, without room."""
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
        """Write where each row finds its state and leaves it, (rows, 2): one row more than parts.

        The rows lie in one page.
        """
        # As if all pages' addresses lay before it, each row's address is a table of its page.
        first = int(self._addresses.ctypes.data) - 8 * (self._start // PAGE)
        for row in range(len(self.parts)):
            tables[row, 1] = tables[row + 1, 0] = first + 8 * row

    def choose(self, page: Page, length: int, end: int) -> bool:
        """Make the state behind ``length`` positions the page's, which has that behind ``end``.

        False where it is not among those that the newest step left.
        """
        if end != self._start + len(self.parts) + 1 or not self._start < length < end:
            return False
        row = length - self._start - 1
        assert page.windowed is not None
        page.windowed, self.parts[row] = self.parts[row], page.windowed
        self._addresses[row] = self.parts[row].address
        self._start = -1
        return True
