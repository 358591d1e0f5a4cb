"""Threads of which every client gets an equal share of time."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from trinity.server.errors import ApiError, unavailable

T = TypeVar("T")
MOST_WAITING_OF_ONE: Final = 64  # functions of one client
MOST_WAITING: Final = 512
MOST_KNOWN: Final = 1024  # clients whose time is remembered


@dataclass(slots=True)
class _Client:
    waiting: deque[tuple[Future[Any], Callable[[], Any]]] = field(default_factory=deque)
    running: int = 0
    seconds: float = 0.0  # of the threads

    @property
    def is_active(self) -> bool:
        return bool(self.waiting or self.running)


class Shares:
    """Runs functions of clients in at most ``count`` threads at a time.

    Whoever has had the fewest seconds of them is next. One client has at most ``count`` - 1 threads
    at a time, so that another one always finds a thread or waits for less than one function. A
    client that comes anew starts with the fewest seconds that an active one has.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._running = 0
        self._clients: dict[Hashable, _Client] = {}
        self._lock = threading.Lock()
        self._seconds = 1.0  # that the newest function took

    def submit(self, client: Hashable, function: Callable[[], T]) -> Future[T]:
        """What ``function`` returns, run in the caller's context; cancelled, it is not begun.

        Raises: ApiError 429 where too many wait. The future raises ApiError 503 where the system
        has no thread to spare.
        """
        job: Future[T] = Future()
        with self._lock:
            own = self._clients.get(client) or _Client()
            self._check(own)
            if not own.is_active:
                active = [one.seconds for one in self._clients.values() if one.is_active]
                own.seconds = max(own.seconds, min(active)) if active else 0.0
            self._clients[client] = own
            own.waiting.append((job, partial(copy_context().run, function)))
        self._begin()
        return job

    def close(self) -> None:
        """Begin nothing more."""
        with self._lock:
            waiting = [job for one in self._clients.values() for job, _ in one.waiting]
            self._clients.clear()
        for job in waiting:
            job.cancel()

    def _check(self, own: _Client) -> None:
        """Drop what was cancelled. Raises: ApiError 429."""
        for one in self._clients.values():
            one.waiting = deque(entry for entry in one.waiting if not entry[0].cancelled())
        everybody = sum(len(one.waiting) for one in self._clients.values())
        if len(own.waiting) < MOST_WAITING_OF_ONE and everybody < MOST_WAITING:
            return
        seconds = math.ceil(len(own.waiting) * self._seconds) or 1
        raise ApiError(
            429,
            f"{len(own.waiting)} grammars of this client wait to be compiled, {everybody} of all "
            f"clients; at most {MOST_WAITING_OF_ONE} and {MOST_WAITING} may",
            code="queue_full",
            headers={"Retry-After": str(seconds)},
        )

    def _begin(self) -> None:
        """Start threads for what may run."""
        while True:
            with self._lock:
                own = self._next()
                if own is None:
                    return
                job, function = own.waiting.popleft()
                own.running += 1
                self._running += 1
            if not job.set_running_or_notify_cancel():
                self._end(own, 0.0)
                continue
            thread = threading.Thread(
                target=self._run, args=(own, job, function), name=self._name, daemon=True
            )
            try:
                thread.start()
            except (RuntimeError, MemoryError) as error:
                self._end(own, 0.0)
                job.set_exception(unavailable(f"the system gives no thread: {error}"))

    def _next(self) -> _Client | None:
        """The client whose function runs next."""
        if self._running >= self._count:
            return None
        most = max(1, self._count - 1)
        ready = [one for one in self._clients.values() if one.waiting and one.running < most]
        return min(ready, key=lambda one: one.seconds, default=None)

    def _run(self, own: _Client, job: Future[Any], function: Callable[[], Any]) -> None:
        began = time.monotonic()
        result, failure = None, None
        try:
            result = function()
        except BaseException as error:
            failure = error
        self._end(own, time.monotonic() - began)
        if failure is None:
            job.set_result(result)
        else:
            job.set_exception(failure)
        del job, function, result, failure
        self._begin()

    def _end(self, own: _Client, seconds: float) -> None:
        with self._lock:
            own.running -= 1
            own.seconds += seconds
            self._running -= 1
            self._seconds = seconds or self._seconds
            idle = [key for key, one in self._clients.items() if not one.is_active]
            if len(idle) == len(self._clients):
                self._clients.clear()
            for key in idle[: max(0, len(self._clients) - MOST_KNOWN)]:
                del self._clients[key]
