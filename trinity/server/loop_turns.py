"""Turns of the event loop: clients' work in one is limited, and all clients get equal parts."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

# Processor time of one turn of the event loop that clients' work may take, in seconds.
SECONDS: Final = 0.001

# Runs on the event loop. Returns the seconds that the work it started will take there.
Work = Callable[[], float]


class LoopTurns:
    """Runs short functions of clients on the event loop, for ``SECONDS`` in each turn of the loop.

    A function runs at once if the turn has time left and nothing waits. Otherwise it waits for a
    later turn, in which every waiting client runs one function, then every client the next one.
    """

    def __init__(self) -> None:
        # The functions of each client that waits. The first client is next.
        self._waiting: dict[str, deque[Work]] = {}
        self._left: float | None = None  # seconds of the current turn; None if it has not begun

    def run(self, client: str, work: Work) -> None:
        """Run ``work`` now or in a later turn."""
        if self._left is None:
            self._begin()
        if self._waiting or not self._has_time:
            self.later(client, work)
        else:
            self._do(work)

    def later(self, client: str, work: Work) -> None:
        """Run ``work`` when other functions that wait have had their turn."""
        if self._left is None:
            self._begin()
        self._waiting.setdefault(client, deque()).append(work)

    @property
    def _has_time(self) -> bool:
        return self._left is not None and self._left > 0

    def _begin(self) -> None:
        self._left = SECONDS
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """The next turn of the event loop."""
        self._left = None
        if not self._waiting:
            return
        self._begin()
        while self._waiting and self._has_time:
            client, works = next(iter(self._waiting.items()))
            del self._waiting[client]
            work = works.popleft()
            if works:
                self._waiting[client] = works  # after the other clients
            self._do(work)

    def _do(self, work: Work) -> None:
        began = time.thread_time()
        following = work()
        if self._left is not None:
            self._left -= time.thread_time() - began + following
