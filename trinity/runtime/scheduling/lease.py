"""Other uses of the engine: exclusively, or for a call between two steps."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from trinity.errors import InputError
from trinity.runtime.interface import Engine
from trinity.runtime.scheduling.inbox import Inbox, Sink


class Lease:
    """The engine thread's view of an exclusive user, who holds the lock ``held``.

    Releasing or dropping the lock ends the lease.
    """

    def __init__(self, held: threading.Lock) -> None:
        self.inbox = Inbox()
        self.thread = threading.get_ident()
        self.granted = False
        self.ended = False  # set by the scheduler
        self._held = weakref.ref(held)

    @property
    def over(self) -> bool:
        """Whether the user has left the engine."""
        held = self._held()
        return self.ended or held is None or not held.locked()


class Exclusive:
    """A context manager in whose block no other request runs steps of the engine. Use it once.

    ``ask`` submits a lease, waits until it is granted, and returns the engine.

    ``__exit__`` is the lock's own C function rather than a Python method. A Ctrl-C could interrupt
    a method after its first instruction; a kept traceback would then hold the engine forever.
    """

    __slots__ = ("__exit__", "_ask", "_held", "_used")
    __exit__: Callable[..., None]

    def __init__(self, ask: Callable[[Lease], Engine]) -> None:
        self._ask = ask
        self._held = threading.Lock()
        self._used = False
        self.__exit__ = self._held.__exit__

    def __enter__(self) -> Engine:
        if self._used or not self._held.acquire(blocking=False):
            raise InputError("this exclusive() was used before; call model.exclusive() again")
        try:
            self._used = True
            return self._ask(Lease(self._held))
        except BaseException:
            self._held.release()
            raise


class Visit:
    """A function that the engine thread calls between two steps; ``sink`` gets its result.

    All requests wait meanwhile, so it must not take longer than a step.
    """

    def __init__(self, function: Callable[[], object], sink: Sink) -> None:
        self._function = function
        self._sink = sink

    def make(self) -> None:
        """Call the function; the sink gets its result or its exception."""
        item: Any
        try:
            item = self._function()
        except BaseException as error:
            item = error
        self._sink.put(item)

    def refuse(self) -> None:
        """Refuse the call, because the model is closed."""
        self._sink.put(InputError("the model is closed; load it again"))
