"""What takes its time runs in threads, so that the event loop stays free."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from trinity.grammar.trial import PROCESSES, NotCompiledError, only_known
from trinity.runtime.turns import client
from trinity.server.errors import ApiError
from trinity.server.shares import Shares

P = ParamSpec("P")
T = TypeVar("T")

# Bytes of the body of a request whose work goes one after the other with that of its like: to
# tokenize a text takes up to a hundred times its bytes while it lasts.
LARGE = 256 << 10
# Bytes of a body that the event loop decodes itself, which takes less than a thread's turn.
SMALL = 16 << 10
# Most requests with large bodies that wait for such work; then 429.
MOST_WAITING = 16

# Bytes of the body of the request that is being answered; its tasks inherit it.
body_bytes: ContextVar[int] = ContextVar("body_bytes", default=0)


class Threads:
    """Runs functions for requests: those of large ones by one thread, of others by several.

    So a large one never takes a thread from small ones, and memory grows by one of them alone.
    A function that needs a grammar compiled starts again in threads for grammars alone, of which
    every client gets its share.
    """

    def __init__(self) -> None:
        self._large = ThreadPoolExecutor(1, "trinity-large")
        self._grammars = Shares(PROCESSES, "trinity-grammar")
        self._waiting = 0
        self._seconds = 1.0  # that the newest large one took

    async def run(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """What ``function`` returns. Raises: what it raises; ApiError 429 where too many wait.

        It is not begun for a client that leaves before its turn. It may run twice, the second time
        where grammars are compiled.
        """
        work = partial(function, *args, **named)
        token = only_known.set(True)
        try:
            return await self._run(work)
        except NotCompiledError:
            pass
        finally:
            only_known.reset(token)
        return await asyncio.wrap_future(self._grammars.submit(client.get(), work))

    async def _run(self, function: Callable[[], T]) -> T:
        if body_bytes.get() <= LARGE:
            return await asyncio.to_thread(function)
        if self._waiting >= MOST_WAITING:
            raise ApiError(
                429,
                f"{self._waiting} requests with large bodies wait; at most {MOST_WAITING} may",
                code="queue_full",
                headers={"Retry-After": str(max(1, math.ceil(self._waiting * self._seconds)))},
            )
        self._waiting += 1
        try:
            work = partial(copy_context().run, self._timed, function)
            return await asyncio.get_running_loop().run_in_executor(self._large, work)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Begin nothing more."""
        self._large.shutdown(wait=False, cancel_futures=True)
        self._grammars.close()

    def _timed(self, function: Callable[[], T]) -> T:
        began = time.monotonic()
        try:
            return function()
        finally:
            self._seconds = time.monotonic() - began
