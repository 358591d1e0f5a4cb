"""Memory for the parts of pages: of several kinds, with one limit for all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from trinity.errors import TrinityError
from trinity.runtime.memory import mapped
from trinity.runtime.page import Kind, Part
from trinity.runtime.paging import give_back

# Memory is taken for several parts of a small model at once, where the system's large pages begin:
# attention reads memory in small ones some percent slower.
SLAB_BYTES, ALIGNMENT = 16 << 20, 2 << 20


class PageMemory:
    """Parts of the given ``sizes`` in bytes, ``nbytes`` of them now: ``limit`` at most.

    ``prepare`` is called with address and size of new memory.
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
        """Those of ``nbytes`` that nobody has."""
        return sum(self._sizes[kind] * len(parts) for kind, parts in self._spare.items())

    def take(self, kind: Kind) -> Part | None:
        """A part, or None where all are in use.

        Raises: TrinityError where the system gives no memory.
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
        """A part that nobody uses any more."""
        if self._closed:
            self.nbytes -= self._sizes[part.kind]
        else:
            self._spare[part.kind].append(part)

    def close(self) -> None:
        """Let the system have all spare memory now, and parts in use once they are given back."""
        self._closed = True
        for kind, parts in self._spare.items():
            self.nbytes -= self._sizes[kind] * len(parts)
            parts.clear()
        for fresh in self._fresh.values():
            fresh.clear()

    def _new(self, kind: Kind) -> NDArray[np.uint8]:
        """Memory of a part that holds nothing."""
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
        """Let the system have a spare part's memory; False without any.

        ``unmap``: its addresses, too, once nothing beside it is used.
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
