"""Joins the chunks of a response that come within a time slice, because each message costs time."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from trinity.runtime.generation import Chunk, joined
from trinity.runtime.scheduling.inbox import AsyncInbox


class SlicedInbox(AsyncInbox):
    """The chunks of one response, joined within slices of ``seconds()`` each.

    The first chunk and the last one are not delayed. A slice ends with the first chunk after its
    time.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        super().__init__()
        self._seconds = seconds
        self._chunks: list[Chunk] = []
        self._ends = 0.0

    def put(self, item: Any) -> None:
        """Receive a number and a chunk, or an exception, from any one thread."""
        if isinstance(item, BaseException):
            super().put(item)
            return
        number, chunk = item
        self._chunks.append(chunk)
        now = monotonic()
        if now >= self._ends or chunk.finish_reason or chunk.evaluated is not None:
            self._ends = now + self._seconds()
            chunks, self._chunks = self._chunks, []
            super().put((number, joined(chunks)))
