"""Measures how long callbacks block the event loop, in processor time of its thread."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.processor_time import check_least

# Twice what docs/reliability.md promises: the processor's caches are shared with other work.
MOST_MS = 10.0


@dataclass
class Held:
    """Records the longest callback since ``clear``."""

    ms: float = 0.0
    what: str = ""  # the callback

    def clear(self) -> None:
        self.ms, self.what = 0.0, ""

    def check(self, work: Callable[[], object]) -> None:
        """Fail if ``work`` blocks an event loop too long each time that it runs.

        ``work`` may call ``clear`` when its preparations are done.
        """

        def measure() -> float:
            gc.collect()
            self.clear()
            work()
            return self.ms

        try:
            check_least(MOST_MS, measure)
        except AssertionError as error:
            error.add_note(self.what)
            raise


@contextmanager
def watched() -> Iterator[Held]:
    """Measure every callback of every event loop.

    Processor time of the thread excludes other processes and threads.
    """
    held, run = Held(), asyncio.Handle._run
    gc.disable()  # the server's process excludes what is there once a model is loaded

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        took = 1000 * (time.thread_time() - began)
        if took > held.ms:
            held.ms, held.what = took, f"{handle!r:.600}"

    asyncio.Handle._run = measured  # type: ignore[method-assign]
    try:
        yield held
    finally:
        gc.enable()
        asyncio.Handle._run = run  # type: ignore[method-assign]
