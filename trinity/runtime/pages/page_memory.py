"""Allocates the memory of page parts of several kinds under one common limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from trinity.errors import TrinityError
from trinity.runtime.memory import mapped
from trinity.runtime.pages.page import Kind, Part
from trinity.runtime.paging import give_back

# Small parts are allocated several at a time, at the boundaries of the system's large pages:
# attention is some percent slower in small pages.
SLAB_BYTES, ALIGNMENT = 16 << 20, 2 << 20


class PageMemory:
    """Allocates parts of the given ``sizes`` in bytes; ``nbytes`` of at most ``limit`` exist now.

    ``prepare`` is called with the address and the size of new memory.
    """

    def __init__(
        self,
        sizes: Mapping[Kind, int],
        limit: int,
        prepare: Callable[[int, int], None] | None = None,
    ) -> None:
        self.limit = limit
        self.nbytes = 0
        self._sizes = dict(sizes)
        self._prepare = prepare
        self._spare: dict[Kind, list[Part]] = {kind: [] for kind in sizes}
        self._fresh: dict[Kind, list[NDArray[np.uint8]]] = {kind: [] for kind in sizes}
        self._closed = False

    @property
    def spare_bytes(self) -> int:
        """The part of ``nbytes`` that is not in use."""
        return sum(self._sizes[kind] * len(parts) for kind, parts in list(self._spare.items()))

    def take(self, kind: Kind) -> Part | None:
        """A part, or None if all are in use.

        Raises: TrinityError if the system refuses memory.
        """
        spare, size = self._spare[kind], self._sizes[kind]
        while not spare:
            if self.nbytes + size <= self.limit:
                try:
                    part = Part(kind, self._new(kind))
                except TrinityError:
                    if not self._drop(unmap=True):
                        raise
                    continue
                self.nbytes += size
                return part
            if not self._drop():
                return None
        return spare.pop()

    def give_back(self, part: Part) -> None:
        """Give back a part that is not used any more."""
        if self._closed:
            self.nbytes -= self._sizes[part.kind]
        else:
            self._spare[part.kind].append(part)

    def close(self) -> None:
        """Return unused memory to the system now, and parts in use once they are given back."""
        self._closed = True
        for kind, parts in self._spare.items():
            self.nbytes -= self._sizes[kind] * len(parts)
            parts.clear()
        for fresh in self._fresh.values():
            fresh.clear()

    def _new(self, kind: Kind) -> NDArray[np.uint8]:
        """A new, empty part."""
        fresh, size = self._fresh[kind], self._sizes[kind]
        if not fresh:
            count = max(1, min(SLAB_BYTES, self.limit - self.nbytes) // size)
            slab = mapped(count * size + ALIGNMENT, f"keys and values in {kind[0]}")
            start = -slab.ctypes.data % ALIGNMENT
            parts = slab[start : start + count * size].reshape(count, size)
            if self._prepare is not None:
                self._prepare(int(parts.ctypes.data), parts.nbytes)
            fresh.extend(reversed(parts))
        return fresh.pop()

    def _drop(self, *, unmap: bool = False) -> bool:
        """Return the memory of an unused part to the system; False if there is none.

        ``unmap``: also its addresses, once nothing else in the mapping is in use.
        """
        if unmap:
            for fresh in self._fresh.values():
                fresh.clear()
        for kind, parts in self._spare.items():
            if parts:
                part = parts.pop()
                self.nbytes -= self._sizes[kind]
                if not unmap and give_back(part.address, part.data.nbytes):
                    self._fresh[kind].append(part.data)
                return True
        return False
