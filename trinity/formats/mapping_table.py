"""Mappings of files, listed in a table for the handler of bus errors.

Compiled code reads the table; trinity_kernels' bus_errors.py defines its layout.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

SLOTS = 1024
_HEADER, _ENTRY = 8, 3  # in int64 words
TABLE = (ctypes.c_int64 * (_HEADER + _ENTRY * SLOTS))()
_free = list(range(SLOTS))


def faults() -> int:
    """Return the number of accesses that met an unreadable page so far."""
    return TABLE[0]


class TableMapping(mmap.mmap):
    """A mapping that is in the table while it is open; beyond SLOTS, mappings are not listed."""

    _slot = -1

    def __new__(cls, *args: Any, **kwargs: Any) -> TableMapping:
        """Return a new mapping; arguments are those of ``mmap.mmap``."""
        self = super().__new__(cls, *args, **kwargs)
        if _free:
            self._slot = _free.pop()
            at = _HEADER + _ENTRY * self._slot
            start = np.frombuffer(self, np.uint8).ctypes.data
            TABLE[at + 2] = 0
            TABLE[at + 1] = start + -(-len(self) // mmap.PAGESIZE) * mmap.PAGESIZE
            TABLE[at] = start
        return self

    @property
    def failed(self) -> bool:
        """Whether an access met a page that could not be read."""
        return self._slot >= 0 and TABLE[_HEADER + _ENTRY * self._slot + 2] != 0

    def close(self) -> None:
        """Close the mapping. Raises BufferError if arrays view it."""
        super().close()
        self._leave()

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        slot, self._slot = self._slot, -1
        if slot >= 0:
            at = _HEADER + _ENTRY * slot
            TABLE[at] = TABLE[at + 1] = 0
            _free.append(slot)
