"""One thread that owns an engine and evaluates for everybody: the way in, and its life.

Requests come as messages, are cancelled by a flag, and get their results into their inboxes. The
thread starts with the first request and sleeps while there is none. No lock is held where a Ctrl-C
or a fork could leave it so: there is a SimpleQueue, and one lock that the thread alone takes.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from itertools import count
from queue import Empty
from typing import Any, TypeVar

from trinity.errors import InputError, TrinityError
from trinity.runtime.engine_loop import EngineLoop
from trinity.runtime.inbox import Inbox, Sink, result_of
from trinity.runtime.interface import Engine
from trinity.runtime.lease import Exclusive, Lease
from trinity.runtime.page import Domain
from trinity.runtime.scheduler_stats import SchedulerStats
from trinity.runtime.sequence import Sequence
from trinity.runtime.slot_hold import SlotHold
from trinity.runtime.visit import Visit
from trinity_kernels import forks

T = TypeVar("T")

TARGET_SECONDS = 0.1
# Between looks at whether there still is a thread; and for a Ctrl-C that does not end a wait.
POLL_SECONDS = 0.2


class EngineThread:
    """Evaluates sequences, submitted from any thread, in steps of one engine.

    ``target_seconds``: what a step shall take where prompts and running sequences share it.
    ``release`` is called once the engine is closed. ``max_sequences`` run at the same time at most.
    A step has ``batch_size`` tokens of prompts at most.
    """

    def __init__(
        self, engine: Engine, *, target_seconds: float = TARGET_SECONDS,
        release: Callable[[], object] = lambda: None, max_sequences: int | None = None,
        batch_size: int | None = None,
    ) -> None:  # fmt: skip
        self.engine = engine
        self.max_sequences = max_sequences
        self.batch_size = batch_size
        self.target_seconds = target_seconds
        self.closing = False
        self.closed = False
        self.abandoned = False
        self._release = release
        self._error: BaseException | None = None  # of closing
        self._arrivals = count(1)
        # By the number of forks: a child begins with a thread, a queue and pages of its own.
        self._loops: dict[int, EngineLoop] = {}
        self._user: Callable[[], object] = lambda: None

    def end_with(self, user: object) -> None:
        """Abandon the engine once nothing refers to ``user``, who has requested nothing yet."""
        self._user = weakref.ref(user)

    def check_open(self) -> None:
        """Raise InputError if the model is closed."""
        if self.closing:
            raise InputError("the model is closed; load it again")

    def submit(self, *sequences: Sequence, client: str = "") -> None:
        """Let sequences be computed; their results go to their sinks.

        ``client``: who sent them; clients take turns.
        Raises: InputError for a closed model, within ``exclusive`` of this thread, and in the
        engine_thread's own thread, which would wait for itself;
        TrinityError where the system gives no thread.
        """
        self.check_open()
        loop = self._outside()
        for sequence in sequences:
            sequence.submitted(next(self._arrivals), client)
            loop.messages.put(sequence)
        loop.ensure()

    def cancel(self, *sequences: Sequence) -> None:
        """End sequences before the next step; those that have ended stay as they are."""
        for sequence in sequences:
            sequence.cancel()
        if not all(sequence.ended for sequence in sequences):
            self._loop().messages.put(None)

    def wait(self, inbox: Inbox) -> Any:
        """The next item of an inbox; an exception is raised.

        Raises: InputError in a child of the process that submitted.
        """
        while True:
            if inbox.forks != forks.count():
                raise InputError(
                    "this stream was opened before the process forked, and goes on in the parent "
                    "alone; start a new one here"
                )
            try:
                return result_of(inbox.items.get(timeout=POLL_SECONDS))
            except Empty:
                loop = self._loop()
                loop.ensure()
                # To wake it: where a timed ``get`` begins late, CPython 3.11 waits without end.
                loop.messages.put(None)

    def stats(self) -> SchedulerStats:
        """What is to be done, and what it costs; from any thread."""
        return self._loop().stats()

    def between(self, function: Callable[[], T]) -> T:
        """What ``function`` returns, called by the engine thread between two steps.

        All requests wait for it. Raises: what it raises, and as ``submit``.
        """
        inbox = Inbox()
        self.visit(function, inbox)
        result: T = self.wait(inbox)
        return result

    def visit(self, function: Callable[[], object], sink: Sink) -> None:
        """As ``between``, for a sink that gets the result."""
        loop = self._outside()
        loop.messages.put(Visit(function, sink))
        loop.ensure()

    def hold(self, slot: Domain, sink: Sink) -> SlotHold:
        """A slot whose answers wait, once those that were submitted before have ended.

        ``sink`` gets None when it is granted. Raises: as ``submit``.
        """
        self.check_open()
        loop = self._outside()
        hold = SlotHold(slot, sink, next(self._arrivals))
        loop.messages.put(hold)
        loop.ensure()
        return hold

    def wake(self) -> None:
        """Let the thread see that something has changed."""
        self._loop().messages.put(None)

    def exclusive(self) -> Exclusive:
        """The engine, for steps of one's own: what runs has ended, new requests wait."""
        return Exclusive(self._lend)

    def _lend(self, lease: Lease) -> Engine:
        self.check_open()
        loop = self._loop()
        loop.messages.put(lease)
        loop.ensure()
        self.wait(lease.inbox)
        if self.closing:
            raise InputError("the model was closed by another thread during the call")
        return self.engine

    def close(self) -> None:
        """End what runs as "cancelled" within one step, then the engine; again is harmless."""
        self.closing = True
        loop = self._loop()
        lease = loop.lease
        if lease is not None and lease.thread == threading.get_ident():
            lease.ended = True
        loop.messages.put(None)
        if loop.is_own_thread():
            return  # it closes the engine when it gets there
        pause = 0.0002
        while not self.closed:
            try:
                loop.ensure()
            except TrinityError:  # no thread to be had, so none that could be in the way
                self.finish()
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
        loop.join()  # its frames hold the engine
        error, self._error = self._error, None
        if error is not None:
            raise error

    def abandon(self) -> None:
        """End the thread, for nobody has the model any more."""
        self.abandoned = True
        loops, self._loops = self._loops, {}
        for loop in loops.values():
            loop.messages.put(None)

    def finish(self) -> None:
        """Close the engine, by the thread that ran it."""
        try:
            self.engine.close()
            if self.engine.pool.store is not None:
                self.engine.pool.store.close()
            self._release()
        except BaseException as error:
            self._error = error
        finally:
            self.closed = True

    def _outside(self) -> EngineLoop:
        """The loop, for callers that it does not wait for. Raises: InputError for others."""
        loop = self._loop()
        if loop.is_own_thread():
            raise InputError(
                "the model was called by the thread that runs it, from a request's cancel: only "
                "its other methods, and those of other models, can be used there"
            )
        lease = loop.lease
        if lease is not None and lease.thread == threading.get_ident():
            raise InputError(
                "this thread uses the model's engine exclusively: end that before the next call"
            )
        return loop

    def _loop(self) -> EngineLoop:
        """This process's."""
        forked = forks.count()
        loop = self._loops.get(forked)
        if loop is None:
            loop = self._loops.setdefault(forked, EngineLoop(self, self._user(), bool(self._loops)))
        return loop
