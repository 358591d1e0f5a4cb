"""Threads for work that would block the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from trinity.grammar.trial import PROCESSES, NotCompiledError, only_known
from trinity.server.caller import Caller
from trinity.server.shares import Shares

P = ParamSpec("P")
T = TypeVar("T")

# Requests with larger bodies run one at a time: tokenizing takes up to 100 times a text's bytes.
LARGE = 256 << 10
# The event loop itself decodes bodies up to this size: that is faster than a thread.
SMALL = 16 << 10
# Most waiting requests, of all clients and of one; more get 429.
MOST_LARGE, MOST_LARGE_OF_ONE = 16, 8
MOST_SMALL, MOST_SMALL_OF_ONE = 4096, 2048
MOST_GRAMMARS, MOST_GRAMMARS_OF_ONE = 512, 64
# As many threads as asyncio has by default.
THREADS = min(32, (os.cpu_count() or 1) + 4)


class Threads:
    """Runs functions of requests in threads: one for large requests, several for others.

    So a large request takes no thread from small ones, and memory grows by one large request at a
    time. A function that needs to compile a grammar is run again in separate threads. All clients
    have equal shares of the threads.
    """

    def __init__(self) -> None:
        self._small = Shares("trinity-small", THREADS, "requests", MOST_SMALL, MOST_SMALL_OF_ONE)
        self._large = Shares(
            "trinity-large", 1, "requests with large bodies", MOST_LARGE, MOST_LARGE_OF_ONE
        )
        self._grammars = Shares(
            "trinity-grammar", PROCESSES, "grammars", MOST_GRAMMARS, MOST_GRAMMARS_OF_ONE
        )

    async def run(
        self, caller: Caller, function: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T:
        """What ``function`` returns, run for a request of ``caller``.

        Raises: what it raises; ApiError 429 if too many wait.

        It does not start for a client that left before its turn. It may run twice, the second time
        in a thread for grammars.
        """
        work = partial(function, *args, **named)
        shares = self._small if caller.body_bytes <= LARGE else self._large
        token = only_known.set(True)
        try:
            return await asyncio.wrap_future(shares.submit(caller.client, work))
        except NotCompiledError:
            pass
        finally:
            only_known.reset(token)
        return await asyncio.wrap_future(self._grammars.submit(caller.client, work))

    def close(self) -> None:
        """Begin nothing more."""
        for shares in (self._small, self._large, self._grammars):
            shares.close()
