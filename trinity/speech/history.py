"""The keys and values of one decoded text, in pages that texts with the same prefix share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.memory import enough_memory
from trinity.runtime.records.recorder import ADVICE
from trinity_kernels.ops.kv_layout import PAGE


class History:
    """Up to ``positions`` positions, in pages of ``nbytes`` bytes that are allocated on demand."""

    def __init__(self, positions: int, nbytes: int) -> None:
        self._positions, self._nbytes = positions, nbytes
        self._pages: list[NDArray[np.uint8]] = []
        self._table = np.zeros(-(-positions // PAGE), np.int64)
        self.length = 0

    @property
    def address(self) -> int:
        """The address of the table of pages."""
        return int(self._table.ctypes.data)

    def extend(self, count: int) -> None:
        """Make room for ``count`` more positions and add them."""
        self.length += count
        while len(self._pages) * PAGE < self.length:
            with enough_memory("for speech", ADVICE):
                self._add(np.zeros(self._nbytes + 64, np.uint8))

    def fork(self) -> History:
        """Another text with the same prefix; the page that both may still write to is copied."""
        other = History(self._positions, self._nbytes)
        whole = self.length // PAGE
        for page in self._pages[:whole]:
            other._add(page)
        for page in self._pages[whole:]:
            with enough_memory("for speech", ADVICE):
                other._add(np.empty_like(page))
            _aligned(other._pages[-1])[: self._nbytes] = _aligned(page)[: self._nbytes]
        other.length = self.length
        return other

    def _add(self, page: NDArray[np.uint8]) -> None:
        self._table[len(self._pages)] = _aligned(page).ctypes.data
        self._pages.append(page)


def _aligned(page: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The part of a page from its first address that is a multiple of 64."""
    return page[-page.ctypes.data % 64 :]
