"""Reads and writes slot files, separately from the server's other work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from trinity.server.errors import ApiError

T = TypeVar("T")

MOST_OPERATIONS = 64  # on slots, at a time


class SlotFiles:
    """A thread for slot files, with a limit on waiting operations."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "trinity-slots")
        self._operations = 0

    @contextmanager
    def entering(self) -> Iterator[None]:
        """Count an operation while it waits or runs. Raises: ApiError 429 if there are too many."""
        if self._operations >= MOST_OPERATIONS:
            raise ApiError(
                429,
                f"{MOST_OPERATIONS} operations on slots wait; no more may",
                code="queue_full",
                headers={"Retry-After": "1"},
            )
        self._operations += 1
        try:
            yield
        finally:
            self._operations -= 1

    async def run(self, function: Callable[[], T]) -> T:
        """Run ``function`` in the thread and return its result. Not for a client that left."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def close(self) -> None:
        """Begin nothing more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
