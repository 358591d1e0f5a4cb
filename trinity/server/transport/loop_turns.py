"""Clients take turns on the event loop: each runs for a short time, then the next one."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from contextvars import Context, ContextVar
from typing import Final

# Seconds for which callbacks run between two polls for input and output. The last may exceed them.
SECONDS: Final = 0.002
# Seconds for which callbacks of one client run before those of the next one.
SECONDS_OF_ONE: Final = 0.001
# Callbacks that run in a turn in addition to those that wait at its beginning.
MORE: Final = 8

# The client for which a callback or task runs: an address or network, for the task of a request the
# owner of its key, if the server has several. Empty for the server itself.
CLIENT: ContextVar[str] = ContextVar("CLIENT", default="")


class LoopTurns:
    """The callbacks that are ready to run on an event loop, in place of asyncio's own queue.

    asyncio runs every ready callback before it polls again, in their order. A request takes several
    polls, so it would wait several times for all that other clients caused. Here each client has a
    queue, the clients take turns, and callbacks run for ``SECONDS`` between two polls. A callback
    belongs to the ``CLIENT`` of its context.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._new = deque[asyncio.Handle]()  # other threads append to it, too
        self._waiting: dict[str, deque[asyncio.Handle]] = {}  # the first client is next
        # The ids of the handles in ``_waiting``: each poll finds those of sockets that wait again.
        self._known = set[int]()
        self._client, self._client_ends = "", 0.0  # whose turn it is, until when
        self._ends = 0.0  # the time of the next poll
        self._nothing = asyncio.Handle(print, (), loop, Context())
        self._nothing.cancel()

    @classmethod
    def install(cls, loop: asyncio.AbstractEventLoop) -> None:
        """Let clients take turns on ``loop``, which does not run yet."""
        loop._ready = cls(loop)  # type: ignore[attr-defined]

    def append(self, handle: asyncio.Handle) -> None:
        """Add a callback, from any thread."""
        self._new.append(handle)

    def clear(self) -> None:
        """Drop all callbacks."""
        self._new.clear()
        self._waiting.clear()
        self._known.clear()

    def __bool__(self) -> bool:
        return bool(self._known or self._new)

    def __len__(self) -> int:
        """The number of callbacks to run before the next poll; asyncio asks once, after a poll."""
        self._sort()
        self._ends = math.inf
        return len(self._known) + MORE if self._known else 0

    def popleft(self) -> asyncio.Handle:
        """The next callback; one that is cancelled if there is none, or no time."""
        self._sort()
        now = time.perf_counter()
        if not self._waiting or now >= self._ends:
            return self._nothing
        if self._ends == math.inf:
            self._ends = now + SECONDS
        own = self._waiting.get(self._client)
        if own is None or now >= self._client_ends:
            if own is not None:
                self._waiting[self._client] = self._waiting.pop(self._client)  # as the last
            self._client, own = next(iter(self._waiting.items()))
            self._client_ends = now + SECONDS_OF_ONE
        handle = own.popleft()
        if not own:
            del self._waiting[self._client]
        self._known.remove(id(handle))
        return handle

    def _sort(self) -> None:
        """Put new callbacks into the queues of their clients."""
        while self._new:
            handle = self._new.popleft()
            if id(handle) not in self._known:
                self._known.add(id(handle))
                client = handle._context.get(CLIENT, "")  # type: ignore[attr-defined]
                self._waiting.setdefault(client, deque()).append(handle)
