"""What takes its time runs in threads, so that the event loop stays free."""

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

# Bytes of the body of a request whose work goes one after the other with that of its like: to
# tokenize a text takes up to a hundred times its bytes while it lasts.
LARGE = 256 << 10
# Bytes of a body that the event loop decodes itself, which takes less than a thread's turn.
SMALL = 16 << 10
# Most requests that wait for such work, and of one client; then 429.
MOST_LARGE, MOST_LARGE_OF_ONE = 16, 8
MOST_SMALL, MOST_SMALL_OF_ONE = 4096, 2048
MOST_GRAMMARS, MOST_GRAMMARS_OF_ONE = 512, 64
# As many threads as asyncio has by default.
THREADS = min(32, (os.cpu_count() or 1) + 4)


class Threads:
    """Runs functions for requests: those of large ones by one thread, of others by several.

    So a large one never takes a thread from small ones, and memory grows by one of them alone.
    A function that needs a grammar compiled starts again in threads for grammars alone. Of all
    these threads every client gets its share.
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

        It is not begun for a client that leaves before its turn. It may run twice, the second time
        where grammars are compiled.
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
