"""Inboxes deliver results of requests from the engine thread to the caller.

A request refers to its inbox weakly. If a stream is dropped, or a call ends with an exception, the
inbox goes away and the request ends.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol
from weakref import WeakKeyDictionary

from trinity.runtime.generation import Chunk, collect
from trinity_kernels import forks

if TYPE_CHECKING:
    import asyncio


MOST_AT_ONCE: Final = 128  # results that one turn of an event loop takes, in a fraction of 1 ms


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

        self._deliveries = Deliveries.of(asyncio.get_running_loop())
        self._items: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, item: Any) -> None:
        """Receive a result or an exception; nothing happens if the loop is closed."""
        self._deliveries.put(self._items.put_nowait, item)

    @property
    def has_next(self) -> bool:
        """Whether ``get`` would return at once."""
        return not self._items.empty()

    async def get(self) -> Any:
        """Return the next result; raise it if it is an exception."""
        return result_of(await self._items.get())


class Deliveries:
    """Passes results from threads to functions that one event loop calls.

    Each call that wakes a loop is a system call that gives up the interpreter's lock. A loop is
    woken once for all results that it has not taken, and at the end of ``together``.
    """

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Deliveries]] = WeakKeyDictionary()
    _held = threading.local()  # ``loops``: within ``together``, those that it wakes

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._results: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._is_woken = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Deliveries:
        """Return those of a loop, in whose thread this must be called."""
        return cls._of.get(loop) or cls._of.setdefault(loop, cls(loop))

    @classmethod
    @contextmanager
    def together(cls) -> Iterator[None]:
        """Wake loops at the end of ``with`` for what this thread puts within it."""
        cls._held.loops = loops = set[Deliveries]()
        try:
            yield
        finally:
            del cls._held.loops
            for deliveries in loops:
                deliveries.wake()

    def put(self, take: Callable[[Any], object], item: Any) -> None:
        """Call ``take`` with ``item`` in the event loop; any thread may call this."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return
        self._results.append((take, item))
        held: set[Deliveries] | None = getattr(self._held, "loops", None)
        if held is None:
            self.wake()
        else:
            held.add(self)

    def wake(self) -> None:
        """Let the loop take the results."""
        loop = self._loop()
        if self._is_woken or loop is None:
            return
        self._is_woken = True
        try:
            loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            self._results.clear()
            if not loop.is_closed():
                raise

    def _deliver(self) -> None:
        self._is_woken = False  # before they are taken: one that comes later wakes again
        for _ in range(min(len(self._results), MOST_AT_ONCE)):
            take, item = self._results.popleft()
            take(item)
        if self._results:
            self.wake()


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
