"""Where a request's results go: from the engine thread to whoever waits for them.

A request knows its inbox weakly. An inbox that nobody holds any more, because a stream was dropped
or a call ended by an exception, ends its request.
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
    """Takes what a request has to say."""

    def put(self, item: Any) -> None:
        """Take a result, or an exception, which is raised in whoever waits."""
        ...


class Inbox:
    """Results for a thread, which waits by ``Scheduler.wait``.

    ``forks`` is the process that it was made in; a child of it has no part in it.
    """

    def __init__(self) -> None:
        self.forks = forks.count()
        self.items: SimpleQueue[Any] = SimpleQueue()

    def put(self, item: Any) -> None:
        """Take a result or an exception."""
        self.items.put(item)


class AsyncInbox:
    """Results for a task of the event loop that runs where it is made."""

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, item: Any) -> None:
        """Take a result or an exception; in a loop that was closed nobody waits for it."""
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    async def get(self) -> Any:
        """The next result; an exception is raised."""
        return result_of(await self._items.get())


class Collector:
    """Makes one thing of an answer's chunks, so that nobody is woken for every token.

    ``make`` gives what is delivered: a completion, or with ``joined`` one chunk.
    """

    def __init__(
        self, deliver: Callable[[Any], None], make: Callable[[list[Chunk]], Any] = collect
    ) -> None:
        self._deliver = deliver
        self._make = make
        self._chunks: list[Chunk] = []

    def put(self, item: Chunk | BaseException) -> None:
        """Keep a chunk; deliver at the last one, or an exception."""
        if isinstance(item, BaseException):
            self._deliver(item)
            return
        self._chunks.append(item)
        if item.finish_reason is not None:
            self._deliver(self._make(self._chunks))


class NumberedSink:
    """Puts what one of several requests has to say into their common inbox, with its number."""

    def __init__(self, inbox: Sink, number: int) -> None:
        self._inbox = inbox
        self._number = number

    def put(self, item: Any) -> None:
        """Pass a result on with the number, an exception as it is."""
        self._inbox.put(item if isinstance(item, BaseException) else (self._number, item))


def result_of(item: Any) -> Any:
    """What was put into an inbox; an exception is raised."""
    if not isinstance(item, BaseException):
        return item
    try:
        raise item
    finally:
        del item  # else this frame and the exception would hold each other
