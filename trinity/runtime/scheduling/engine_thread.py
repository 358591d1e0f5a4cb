"""The handle by which callers use the engine thread, which runs the requests of all of them.

Requests arrive as messages, are cancelled by a flag, and put their results into inboxes. The thread
starts with the first request and sleeps while there is none. Ctrl-C or a fork cannot leave a lock
held: there is one SimpleQueue, and one lock that only the thread takes. What the
thread does is in ``engine_loop.py``.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from itertools import count
from queue import Empty
from typing import Any, TypeVar

from trinity.errors import InputError, TrinityError
from trinity.runtime.interface import Engine
from trinity.runtime.pages.page import Domain
from trinity.runtime.pages.slot_hold import SlotHold
from trinity.runtime.scheduling.engine_loop import EngineLoop
from trinity.runtime.scheduling.inbox import Inbox, Sink, result_of
from trinity.runtime.scheduling.lease import Exclusive, Lease, Visit
from trinity.runtime.scheduling.scheduler_stats import SchedulerStats
from trinity.runtime.scheduling.sequence import Sequence
from trinity_kernels import forks

T = TypeVar("T")

TARGET_SECONDS = 0.1
# Seconds between checks that the thread still exists; a Ctrl-C does not end a wait.
POLL_SECONDS = 0.2


@dataclass(eq=False, repr=False)
class EngineThread:
    """Computes sequences, submitted from any thread, in steps of one engine.

    ``target_seconds``: the duration of a step in which prompts and generating sequences run
    together. ``release`` is called once the engine is closed. ``max_sequences``: the maximum number
    of sequences that run at the same time. ``batch_size``: the maximum number of prompt tokens per
    step.
    """

    engine: Engine
    _: KW_ONLY
    target_seconds: float = TARGET_SECONDS
    release: Callable[[], object] = lambda: None
    max_sequences: int | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        self.closing = False
        self.closed = False
        self.abandoned = False
        self._error: BaseException | None = None  # raised while closing
        self._arrivals = count(1)
        # By the number of forks: a child process has its own thread, queue and pages.
        self._loops: dict[int, EngineLoop] = {}
        self._user: Callable[[], object] = lambda: None

    def end_with(self, user: object) -> None:
        """Close the engine once nothing refers to ``user``, which has submitted nothing yet."""
        self._user = weakref.ref(user)

    def check_open(self) -> None:
        """Raise InputError if the model is closed."""
        if self.closing:
            raise InputError("the model is closed; load it again")

    def submit(self, *sequences: Sequence, client: str = "") -> None:
        """Start computing sequences; their results go to their sinks.

        ``client``: who sent them; clients take turns.
        Raises: InputError for a closed model, within ``exclusive`` of this thread, and in the
        engine thread itself, which would wait for itself; TrinityError if the system refuses a
        thread.
        """
        self.check_open()
        loop = self._outside()
        for sequence in sequences:
            sequence.submitted(next(self._arrivals), client)
            loop.messages.put(sequence)
        loop.ensure()

    def cancel(self, *sequences: Sequence) -> None:
        """End sequences before the next step; sequences that have ended do not change."""
        for sequence in sequences:
            sequence.cancel()
        if not all(sequence.ended for sequence in sequences):
            self._loop().messages.put(None)

    def wait(self, inbox: Inbox) -> Any:
        """The next item of an inbox; an exception is raised.

        Raises: InputError in a child of the process that submitted the request.
        """
        while True:
            if inbox.forks != forks.count():
                raise InputError(
                    "this stream was opened before the process forked, and continues only in "
                    "the parent process; start a new one here"
                )
            try:
                return result_of(inbox.items.get(timeout=POLL_SECONDS))
            except Empty:
                loop = self._loop()
                loop.ensure()
                # Wake the thread: if a timed ``get`` starts late, CPython 3.11 waits forever.
                loop.messages.put(None)

    def stats(self) -> SchedulerStats:
        """Statistics of the scheduler; any thread may call this."""
        return self._loop().stats()

    def between(self, function: Callable[[], T]) -> T:
        """Call ``function`` in the engine thread between two steps and return its result.

        All requests wait meanwhile. Raises: what ``function`` raises, and as ``submit``.
        """
        inbox = Inbox()
        self.visit(function, inbox)
        result: T = self.wait(inbox)
        return result

    def visit(self, function: Callable[[], object], sink: Sink) -> None:
        """As ``between``, but the result goes to a sink."""
        loop = self._outside()
        loop.messages.put(Visit(function, sink))
        loop.ensure()

    def hold(self, slot: Domain, sink: Sink) -> SlotHold:
        """Hold a slot: its requests wait, after those that were submitted before have ended.

        ``sink`` gets None when the slot is held. Raises: as ``submit``.
        """
        self.check_open()
        loop = self._outside()
        hold = SlotHold(slot, sink, next(self._arrivals))
        loop.messages.put(hold)
        loop.ensure()
        return hold

    def wake(self) -> None:
        """Wake the thread so that it looks for changes."""
        self._loop().messages.put(None)

    def exclusive(self) -> Exclusive:
        """The engine for single steps; running requests end first, new ones wait."""
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
        """End running requests as "cancelled" within one step, then the engine."""
        self.closing = True
        loop = self._loop()
        lease = loop.lease
        if lease is not None and lease.thread == threading.get_ident():
            lease.ended = True
        loop.messages.put(None)
        if loop.is_own_thread():
            return  # the thread closes the engine
        pause = 0.0002
        while not self.closed:
            try:
                loop.ensure()
            except TrinityError:  # no thread can be started, so none is running
                self.finish()
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
        loop.join()  # the thread's frames hold the engine
        error, self._error = self._error, None
        if error is not None:
            raise error

    def abandon(self) -> None:
        """End the thread because the model is no longer used."""
        self.abandoned = True
        loops, self._loops = self._loops, {}
        for loop in loops.values():
            loop.messages.put(None)

    def finish(self) -> None:
        """Close the engine from the thread that ran it."""
        try:
            self.engine.close()
            if self.engine.pool.store is not None:
                self.engine.pool.store.close()
            self.release()
        except BaseException as error:
            self._error = error
        finally:
            self.closed = True

    def _outside(self) -> EngineLoop:
        """The loop, for callers outside of it. Raises: InputError inside ``exclusive`` or the
        thread.
        """
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
        """The loop of this process."""
        forked = forks.count()
        loop = self._loops.get(forked)
        if loop is None:
            loop = self._loops.setdefault(forked, EngineLoop(self, self._user(), bool(self._loops)))
        return loop
