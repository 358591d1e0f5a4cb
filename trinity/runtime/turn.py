"""Whose turn it is: calls from several threads use one engine one after the other."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

from trinity.errors import InputError
from trinity.runtime.cancel import Cancel
from trinity_kernels import forks

POLL_SECONDS = 0.1
STALL_SECONDS = 5.0


class Ticket:
    """A place in the queue, and the turn once all before it are gone.

    It is given up by dropping the only reference to it: ``del ticket`` is one bytecode, so no
    Ctrl-C can come before it has an effect, and a frame that dies gives it up too.
    """

    __slots__ = ("__weakref__", "place")
    place: _Place

    def pause(self) -> None:
        """Keep the turn while the consumer of a stream is busy."""
        self.place.idle_since = time.monotonic()

    def resume(self) -> None:
        """Go on after ``pause``, perhaps in another thread.

        Raises: InputError in a forked child, which has no part in its parent's streams.
        """
        if self.place.forks != forks.count():
            raise InputError(
                "this stream was opened before the process forked, and goes on in the parent "
                "alone; start a new one here"
            )
        self.place.idle_since = None
        self.place.thread = threading.get_ident()


class _Place(weakref.ref[Ticket]):
    """What is known of a ticket without holding it."""

    __slots__ = ("called", "forks", "idle_since", "thread")

    def __init__(self, ticket: Ticket, _gone: Callable[[weakref.ref[Ticket]], object]) -> None:
        self.thread = threading.get_ident()
        self.idle_since: float | None = None
        self.forks = forks.count()
        self.called = threading.Event()


class Turn:
    """A first-come-first-served lock that any thread may give up, and that no fork leaves held.

    A suspended stream keeps its turn, and a garbage collector may end it in any thread: hence no
    mutex, and waiters that look again now and then instead of trusting to be woken.
    """

    def __init__(self) -> None:
        self._queue: list[weakref.ref[Ticket]] = []

    def acquire(self, cancel: Cancel | None = None) -> Ticket | None:
        """Wait for the turn, which lasts as long as the ticket. None where ``cancel`` came first.

        Raises: InputError where the turn belongs to a call of this very thread: waiting on would
        never end.
        """
        ticket = Ticket()
        try:
            place = ticket.place = _Place(ticket, self._queue.remove)
            self._queue.append(place)
            while (first := self._first()) is not place:
                if cancel is not None and cancel.is_set():
                    return None
                _check_deadlock(first)
                place.called.wait(POLL_SECONDS)
            return ticket
        finally:
            del ticket  # else an exception's traceback would hold it

    def call_next(self) -> None:
        """Tell the one who waits longest that the turn was given up; else it takes a moment."""
        first = self._first()
        if first is not None:
            first.called.set()

    def held_before_fork(self) -> bool:
        """Whether a call was under way when this process was forked off."""
        return any(place.forks != forks.count() for place in self._places())

    def _first(self) -> _Place | None:
        """Who has the turn."""
        return next((place for place in self._places() if place.forks == forks.count()), None)

    def _places(self) -> list[_Place]:
        queue = list(self._queue)
        return [place for place in queue if isinstance(place, _Place) and place() is not None]


def _check_deadlock(holder: _Place | None) -> None:
    if holder is None or holder.thread != threading.get_ident():
        return
    idle_since = holder.idle_since
    if idle_since is None:
        raise InputError(
            "the model was called within one of its own calls, by a signal handler or a callback "
            "in the same thread; wait until that call is over"
        )
    if time.monotonic() - idle_since > STALL_SECONDS:
        raise InputError(
            "a stream of this model is still open in this thread: read it to its end or "
            "close() it before the next call, or load the model a second time"
        )
