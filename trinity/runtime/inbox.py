"""Inboxes deliver results of requests from the engine thread to the caller.

A request refers to its inbox weakly. If a stream is dropped, or a call ends with an exception, the
inbox goes away and the request ends.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from trinity.runtime.generation import Chunk, collect
from trinity_kernels import forks

if TYPE_CHECKING:
    import asyncio


class Sink(Protocol):
    """Receives the results of a request."""

    def put(self, item: Any) -> None:
        """Pass on a result with the number, or an exception without it."""
        ...


class Inbox:
    """Results for a thread, which waits with ``EngineThread.wait``.

    ``forks`` identifies the process that created the inbox; a child process cannot use it.
    """

    def __init__(self) -> None:
        self.forks = forks.count()
        self.items: SimpleQueue[Any] = SimpleQueue()

    def put(self, item: Any) -> None:
        """Receive a result or an exception."""
        self.items.put(item)


class AsyncInbox:
    """Results for a task of the running event loop."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, item: Any) -> None:
        """Receive a result or an exception; nothing happens if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    async def get(self) -> Any:
        """Return the next result; raise it if it is an exception."""
        return result_of(await self._items.get())


class Collector:
    """Collects the chunks of a response, so that the caller is not woken for every token.

    ``make`` turns the chunks into what is delivered: a completion, or with ``joined`` one chunk.
    """

    def __init__(
        self, deliver: Callable[[Any], None], make: Callable[[list[Chunk]], Any] = collect
    ) -> None:
        self._deliver = deliver
        self._make = make
        self._chunks: list[Chunk] = []

    def put(self, item: Chunk | BaseException) -> None:
        """Keep a chunk; deliver at the last one, or an exception at once."""
        if isinstance(item, BaseException):
            self._deliver(item)
            return
        self._chunks.append(item)
        if item.finish_reason is not None:
            self._deliver(self._make(self._chunks))


class NumberedSink:
    """Puts the results of one of several requests into their common inbox, with its number."""

    def __init__(self, inbox: Sink, number: int) -> None:
        self._inbox = inbox
        self._number = number

    def put(self, item: Any) -> None:
        """Pass on a result with the number; an exception is passed on alone."""
        self._inbox.put(item if isinstance(item, BaseException) else (self._number, item))


def result_of(item: Any) -> Any:
    """Return an item of an inbox; raise it if it is an exception."""
    if not isinstance(item, BaseException):
        return item
    try:
        raise item
    finally:
        del item  # otherwise this frame and the exception would refer to each other
