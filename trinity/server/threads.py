"""Threads for work that would block the event loop, shared equally between clients."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from trinity.grammar.trial import PROCESSES, NotCompiledError, only_known
from trinity.runtime.paging import give_back_heap
from trinity.server.caller import Caller
from trinity.server.errors import ApiError, unavailable

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
MOST_FETCHES, MOST_FETCHES_OF_ONE = 64, 8
FETCHING = 4  # threads that wait for other servers
# Threads for requests with small bodies; a client has one at a time. More would not compute faster,
# because one thread at a time holds the interpreter's lock. The event loop waits for that lock with
# them, and does not come first: with two busy threads of one client it waited twice as long.
THREADS: Final = 3
MOST_KNOWN: Final = 1024  # clients whose time is remembered
QUIET_SECONDS: Final = 1.0  # after which a thread without work may do something about memory
REST_SECONDS: Final = 0.01  # most for which a thread rests between two large requests
IDLE_SECONDS: Final = 10.0  # after which a thread without work ends


class NotFetchedError(Exception):
    """A function needs images from other servers; it must run again in a thread for that."""


class Threads:
    """Runs functions of requests in threads: one for large requests, several for others.

    So a large request takes no thread from small ones, and memory grows by one large request at a
    time. A function that needs to compile a grammar or to fetch images is run again in separate
    threads. All clients have equal shares of the threads.
    """

    def __init__(self) -> None:
        self._small = Shares(
            "trinity-small", THREADS, "requests", MOST_SMALL, MOST_SMALL_OF_ONE, of_one=1
        )
        self._large = Shares(
            "trinity-large", 1, "requests with large bodies", MOST_LARGE, MOST_LARGE_OF_ONE,
            when_idle=give_back_heap, rest=REST_SECONDS,
        )  # fmt: skip
        self._grammars = Shares(
            "trinity-grammar", PROCESSES, "grammars", MOST_GRAMMARS, MOST_GRAMMARS_OF_ONE
        )
        self._fetches = Shares(
            "trinity-fetch", FETCHING, "requests with URLs of images", MOST_FETCHES,
            MOST_FETCHES_OF_ONE,
        )  # fmt: skip

    async def run(
        self, caller: Caller, function: Callable[P, T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Run ``function`` for a request of ``caller`` and return its result.

        Raises: its exceptions; ApiError 429 if too many wait.

        It does not start for a client that left before its turn. It may run twice, the second time
        in a thread for grammars or for fetching.
        """
        work = partial(function, *args, **named)
        shares = self._small if caller.body_bytes <= LARGE else self._large
        token = only_known.set(True)
        try:
            return await asyncio.wrap_future(shares.submit(caller.client, work))
        except NotCompiledError:
            shares = self._grammars
        except NotFetchedError:
            shares = self._fetches
        finally:
            only_known.reset(token)
        return await asyncio.wrap_future(shares.submit(caller.client, work))

    def close(self) -> None:
        """Begin nothing more."""
        for shares in (self._small, self._large, self._grammars, self._fetches):
            shares.close()


@dataclass(slots=True)
class _Client:
    waiting: deque[tuple[Future[Any], Callable[[], Any]]] = field(default_factory=deque)
    running: int = 0
    seconds: float = 0.0  # of the threads

    @property
    def is_active(self) -> bool:
        return bool(self.waiting or self.running)


@dataclass(slots=True)
class _Job:
    client: _Client
    future: Future[Any]
    function: Callable[[], Any]


class Shares:
    """Runs functions of clients in at most ``threads`` threads at a time.

    The client that has used the fewest seconds is next. A client uses at most ``of_one`` threads at
    a time, by default ``threads`` - 1, so another client gets a thread at once or waits for part of
    one function.
    A new client starts with the fewest seconds of the active ones. ``most`` functions may wait,
    ``most_of_one`` of each client; ``what`` names them in errors. An idle thread waits for work for
    a while, because starting a thread can block the caller, which is the event loop.
    """

    def __init__(
        self, name: str, threads: int, what: str, most: int, most_of_one: int,
        when_idle: Callable[[], None] = lambda: None, rest: float = 0.0, of_one: int = 0,
    ) -> None:  # fmt: skip
        self._name, self._threads = name, threads
        self._of_one = of_one or max(1, threads - 1)
        # Called by a thread that has had no work for QUIET_SECONDS. Its last request may have ended
        # before it, when the client left.
        self._when_idle = when_idle
        # A thread that has a next function first rests for as long as the last one took, or for
        # ``rest`` seconds if that is less: decoding holds the interpreter's lock, and the event
        # loop can run meanwhile.
        self._rest = rest
        self._what, self._most, self._most_of_one = what, most, most_of_one
        self._running = 0
        self._idle = 0  # threads that wait for a job
        self._handed: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._clients: dict[Hashable, _Client] = {}
        self._lock = threading.Lock()
        self._seconds = 1.0  # that the newest function took

    def submit(self, client: Hashable, function: Callable[[], T]) -> Future[T]:
        """Run ``function`` in the caller's context; if the future is cancelled, it is not started.

        Raises: ApiError 429 if too many wait. The future raises ApiError 503 if the system cannot
        start a thread.
        """
        future: Future[T] = Future()
        with self._lock:
            own = self._clients.get(client) or _Client()
            self._check(own)
            if not own.is_active:
                active = [other.seconds for other in self._clients.values() if other.is_active]
                own.seconds = max(own.seconds, min(active)) if active else 0.0
            self._clients[client] = own
            own.waiting.append((future, partial(copy_context().run, function)))
        while True:
            with self._lock:
                job = self._next()
                is_handed = job is not None and self._idle > 0
                self._idle -= is_handed
            if job is None:
                return future
            if is_handed:
                self._handed.put(job)
            else:
                self._start(job)

    def close(self) -> None:
        """Begin nothing more."""
        with self._lock:
            waiting = [future for other in self._clients.values() for future, _ in other.waiting]
            self._clients.clear()
            self._closed, idle, self._idle = True, self._idle, 0
        for _ in range(idle):
            self._handed.put(None)
        for future in waiting:
            future.cancel()

    def _check(self, own: _Client) -> None:
        """Drop cancelled jobs. Raises: ApiError 429."""
        everybody = sum(len(other.waiting) for other in self._clients.values())
        if len(own.waiting) < self._most_of_one and everybody < self._most:
            return
        for other in self._clients.values():
            other.waiting = deque(entry for entry in other.waiting if not entry[0].cancelled())
        count, everybody = len(own.waiting), sum(len(c.waiting) for c in self._clients.values())
        if count < self._most_of_one and everybody < self._most:
            return
        raise ApiError(
            429,
            f"{count} {self._what} of this client wait, {everybody} of all clients; at most "
            f"{self._most_of_one} and {self._most} may",
            code="queue_full",
            headers={"Retry-After": str(max(1, math.ceil(count * self._seconds)))},
        )

    def _next(self) -> _Job | None:
        """Return the next job and count it as running. The caller holds the lock."""
        while self._running < self._threads:
            ready = [c for c in self._clients.values() if c.waiting and c.running < self._of_one]
            if not ready:
                return None
            own = min(ready, key=lambda client: client.seconds)
            future, function = own.waiting.popleft()
            if future.set_running_or_notify_cancel():
                own.running += 1
                self._running += 1
                return _Job(own, future, function)
        return None

    def _start(self, job: _Job) -> None:
        """Run a job in a new thread."""
        thread = threading.Thread(target=self._run, args=([job],), name=self._name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            with self._lock:
                self._end(job.client, 0.0)
            job.future.set_exception(unavailable(f"the system gives no thread: {error}"))

    def _run(self, first: list[_Job]) -> None:
        """Run the first job, then jobs that wait, then jobs that `submit` hands over.

        ``first`` is emptied, because a thread refers to its arguments for as long as it lives.
        """
        job: _Job | None = first.pop()
        while job is not None:
            job, is_idle = self._do(job)
            if is_idle:
                job = self._wait()

    def _do(self, job: _Job) -> tuple[_Job | None, bool]:
        """Run a function. Returns the thread's next job, and whether the thread is idle.

        A thread takes its next job at the moment in which it ends one. If another thread could get
        that job, the memory of the first one's heap would stay unused.
        """
        began = time.monotonic()
        try:
            result = job.function()
        except BaseException as error:
            seconds = time.monotonic() - began
            following = self._turn(job.client, seconds)
            job.future.set_exception(error)
        else:
            seconds = time.monotonic() - began
            following = self._turn(job.client, seconds)
            job.future.set_result(result)
        del job  # an error refers to this frame, and the job to the error
        if self._rest and following[0] is not None:
            time.sleep(min(seconds, self._rest))
        return following

    def _turn(self, own: _Client, seconds: float) -> tuple[_Job | None, bool]:
        """End a client's job and take the next one, or count the thread as idle."""
        with self._lock:
            self._end(own, seconds)
            following = self._next()
            is_idle = following is None and not self._closed
            self._idle += is_idle
            return following, is_idle

    def _wait(self) -> _Job | None:
        """Wait for a job. Returns None if the thread must end. It counts as idle."""
        with suppress(Empty):
            return self._handed.get(timeout=QUIET_SECONDS)
        self._when_idle()
        try:
            return self._handed.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    return None
            return self._handed.get()  # it was handed over meanwhile

    def _end(self, own: _Client, seconds: float) -> None:
        """Count a client's job as ended. The caller holds the lock."""
        own.running -= 1
        own.seconds += seconds
        self._running -= 1
        self._seconds = seconds or self._seconds
        idle = [key for key, client in self._clients.items() if not client.is_active]
        if len(idle) == len(self._clients):
            self._clients.clear()
        for key in idle[: max(0, len(self._clients) - MOST_KNOWN)]:
            del self._clients[key]
