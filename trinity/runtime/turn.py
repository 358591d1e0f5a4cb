"""Whose turn it is: calls from several threads use one engine one after the other."""

from __future__ import annotations

import threading
import time
from collections import deque

from trinity.errors import InputError
from trinity.runtime.session import Cancel

POLL_SECONDS = 0.1
STALL_SECONDS = 5.0


class Turn:
    """A first-come-first-served lock that may be released by any thread.

    A suspended stream keeps its turn, and a garbage collector may end it in any thread: hence the
    reentrant mutex, and waiters that look again now and then instead of trusting to be woken.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._busy = False
        self._waiters: deque[threading.Event] = deque()
        self._thread = 0
        self._idle_since: float | None = None

    def acquire(self, cancel: Cancel | None = None) -> bool:
        """Wait for the turn. False where ``cancel`` was set first.

        Raises: InputError where the turn belongs to a stream that this very thread has suspended
        for some seconds: waiting on would never end.
        """
        ticket = threading.Event()
        self._waiters.append(ticket)
        try:
            while not self._take(ticket):
                if cancel is not None and cancel.is_set():
                    return False
                self._check_deadlock()
                ticket.wait(POLL_SECONDS)
        finally:
            with self._mutex:
                if ticket in self._waiters:
                    self._waiters.remove(ticket)
        self.resume()
        return True

    def _take(self, ticket: threading.Event) -> bool:
        with self._mutex:
            if self._busy or self._waiters[0] is not ticket:
                return False
            self._busy = True
            return True

    def release(self) -> None:
        """Give the turn to the one who waits longest."""
        with self._mutex:
            self._busy = False
            self._idle_since = None
            if self._waiters:
                self._waiters[0].set()

    def pause(self) -> None:
        """Keep the turn while the consumer of a stream is busy."""
        self._idle_since = time.monotonic()

    def resume(self) -> None:
        """Go on after ``pause``, perhaps in another thread."""
        self._idle_since = None
        self._thread = threading.get_ident()

    def _check_deadlock(self) -> None:
        idle_since = self._idle_since
        if (
            idle_since is not None
            and self._thread == threading.get_ident()
            and time.monotonic() - idle_since > STALL_SECONDS
        ):
            raise InputError(
                "a stream of this model is still open in this thread: read it to its end or "
                "close() it before the next call, or load the model a second time"
            )
