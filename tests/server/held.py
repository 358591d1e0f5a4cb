"""How long callbacks hold the event loop, in processor time of its thread."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Held:
    """The longest callback since ``clear``: its milliseconds, and what it was."""

    ms: float = 0.0
    what: str = ""

    def clear(self) -> None:
        self.ms, self.what = 0.0, ""


@contextmanager
def watched() -> Iterator[Held]:
    """Measure every callback of every event loop.

    Processor time of the thread is not disturbed by other processes, nor by threads of this one.
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
