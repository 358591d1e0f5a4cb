"""Attention of rows to all rows of a text or an image, as an encoder without a KV cache has it.

Rows of an image may also attend to those of their window alone.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.records.recorder import BYTES, SPLIT, Heads, Pages, Recorder, RowBuffer


class FullAttention:
    """Queries, keys and values of ``count`` rows in ``q``, ``k`` and ``v``, and their attention.

    The buffers serve one layer after the other.
    """

    def __init__(self, recorder: Recorder, count: int, heads: Heads) -> None:
        self._recorder, self._heads, self._count = recorder, heads, count
        self.q, self.k, self.v = (RowBuffer(count, heads.number * heads.dim) for _ in range(3))
        self._positions = np.arange(count, dtype=np.int32)
        # The first and the last row that each row sees: all, and those of its window.
        self._whole = np.zeros((2, count), np.int32)
        self._whole[1] = count - 1
        self.spans = np.zeros_like(self._whole)

    @cached_property
    def _pages(self) -> Pages:
        """Memory for keys and values in float32."""
        return Pages(1, self._count, self._heads.number, self._heads.dim)

    @cached_property
    def _caches(self) -> NDArray[np.int64]:
        return np.full(self._count, self._pages.address, np.int64)

    def write(self, into: RowBuffer, *, as_bytes: bool = False, windows: bool = False) -> None:
        """Write the records of attention, whose result is in ``into``.

        ``as_bytes``: with int8 operands if that is faster here. ``windows``: within ``spans``.
        """
        recorder, heads = self._recorder, self._heads
        kind = BYTES if as_bytes else SPLIT
        if not windows and recorder.has(kind):
            rows = self.q.at(), self.k.at(), self.v.at()
            recorder.whole_attention(kind, *rows, heads, into.at())
            return
        recorder.store(self.k.at(), self.v.at(), heads, self._positions, self._caches, 0)
        firsts, lasts = self.spans if windows else self._whole
        recorder.attention(self.q.at(), heads, into.at(), lasts, self._caches, 0, firsts=firsts)
