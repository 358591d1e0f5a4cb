"""Attention of rows to all rows of a text or an image, as an encoder without a KV cache has it.

Rows of an image may also attend to those of their window alone.
"""

from __future__ import annotations

import numpy as np

from trinity.runtime.records.recorder import Heads, Pages, Recorder, RowBuffer


class FullAttention:
    """Queries, keys and values of ``count`` rows in ``q``, ``k`` and ``v``, and their attention.

    The buffers serve one layer after the other.
    """

    def __init__(self, recorder: Recorder, count: int, heads: Heads) -> None:
        self._recorder, self._heads = recorder, heads
        self.q, self.k, self.v = (RowBuffer(count, heads.number * heads.dim) for _ in range(3))
        self._pages = Pages(1, count, heads.number, heads.dim)
        self._positions = np.arange(count, dtype=np.int32)
        self._caches = np.full(count, self._pages.address, np.int64)
        # The first and the last row that each row sees: all, and those of its window.
        self._whole = np.zeros((2, count), np.int32)
        self._whole[1] = count - 1
        self.spans = np.zeros_like(self._whole)

    def write(self, into: RowBuffer, *, as_bytes: bool = False, windows: bool = False) -> None:
        """Write the records of attention, whose result is in ``into``.

        ``as_bytes``: with int8 operands if that is faster here. ``windows``: within ``spans``.
        """
        recorder, heads = self._recorder, self._heads
        if as_bytes and not windows and recorder.has_byte_attention():
            recorder.byte_attention(self.q.at(), self.k.at(), self.v.at(), heads, into.at())
            return
        recorder.store(self.k.at(), self.v.at(), heads, self._positions, self._caches, 0)
        firsts, lasts = self.spans if windows else self._whole
        recorder.attention(self.q.at(), heads, into.at(), lasts, self._caches, 0, firsts=firsts)
