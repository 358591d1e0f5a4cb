"""Attention of rows to all rows of a text or an image, as an encoder without a KV cache has it.

Rows of an image may also attend to those of their window alone.
"""

from __future__ import annotations

import numpy as np

from trinity.runtime.records.recorder import Heads, Pages, Recorder, RowBuffer
from trinity.runtime.records.rows_view import RowsView

TOGETHER = 8  # rows of queries that attention computes together, as if they were heads


class FullAttention:
    """Queries, keys and values of ``count`` rows in ``q``, ``k`` and ``v``, and their attention.

    The buffers serve one layer after the other.
    """

    def __init__(self, recorder: Recorder, count: int, heads: Heads) -> None:
        self._recorder, self._heads = recorder, heads
        self.rows = -(-count // TOGETHER) * TOGETHER
        width, groups = heads.number * heads.dim, self.rows // TOGETHER
        self.q, self.k, self.v = (RowBuffer(self.rows, width) for _ in range(3))
        self._grouped = RowBuffer(groups, TOGETHER * width)
        self._mixed = RowBuffer(groups, TOGETHER * width)
        self._pages = Pages(1, count, heads.number, heads.dim)
        self._positions = np.arange(count, dtype=np.int32)
        self._last = np.full(groups, count - 1, np.int32)
        self._caches = np.full(self.rows, self._pages.address, np.int64)
        self._groups = recorder.number(groups)
        # The first and the last row of each row's window.
        self.spans = np.zeros((2, count), np.int32)

    def write_windows(self, into: RowBuffer) -> RowBuffer:
        """Write the records of attention within windows; return the buffer of the result."""
        recorder, heads = self._recorder, self._heads
        recorder.store(self.k.at(), self.v.at(), heads, self._positions, self._caches, 0)
        firsts, lasts = self.spans
        recorder.attention(self.q.at(), heads, 1, into.at(), lasts, self._caches, 0, firsts=firsts)
        return into

    def write(self, into: RowBuffer, *, as_bytes: bool) -> RowBuffer:
        """Write the records of attention; return the buffer of the result: ``into`` or ``q``.

        ``as_bytes``: with int8 operands if that is faster here.
        """
        recorder, heads = self._recorder, self._heads
        if as_bytes and recorder.has_byte_attention():
            recorder.byte_attention(self.q.at(), self.k.at(), self.v.at(), heads, into.at())
            return into
        recorder.store(self.k.at(), self.v.at(), heads, self._positions, self._caches, 0)
        # Queries of one head from several rows are contiguous, so keys and values are read once for
        # them.
        rows, recorder.rows = recorder.rows, self._groups  # fewer rows than ``most``
        piece = 4 * heads.dim
        for i in range(TOGETHER):
            own = RowsView(self.q.at(i).address, TOGETHER * self.q.stride)
            to = RowsView(self._grouped.at().address + i * piece, self._grouped.stride)
            last = i == TOGETHER - 1
            recorder.copy(own, piece, to, TOGETHER * piece, heads.number, heads.dim, last)
        recorder.attention(
            self._grouped.at(), heads, TOGETHER, self._mixed.at(), self._last, self._caches, 0
        )
        for i in range(TOGETHER):
            own = RowsView(self.q.at(i).address, TOGETHER * self.q.stride)
            taken = RowsView(self._mixed.at().address + i * piece, self._mixed.stride)
            last = i == TOGETHER - 1
            recorder.copy(taken, TOGETHER * piece, own, piece, heads.number, heads.dim, last)
        recorder.rows = rows
        return self.q
