"""The engine for one user alone."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from trinity.errors import InputError
from trinity.runtime.inbox import Inbox
from trinity.runtime.interface import Engine


class Lease:
    """What the engine thread knows of an exclusive user, who holds the lock ``held``.

    Releasing the lock ends the lease, and so does dropping it.
    """

    def __init__(self, held: threading.Lock) -> None:
        self.inbox = Inbox()
        self.thread = threading.get_ident()
        self.granted = False
        self.ended = False  # by the scheduler
        self._held = weakref.ref(held)

    @property
    def over(self) -> bool:
        """Whether the engine is free of this user."""
        held = self._held()
        return self.ended or held is None or not held.locked()


class Exclusive:
    """``with`` it, nobody else runs steps of the engine until the block is left. It is used once.

    ``ask`` submits a lease, waits until it is granted, and gives the engine.

    ``__exit__`` is the lock's, no Python code: a Ctrl-C comes before the call, and the block is
    left by it, or afterwards. Of a method the first instruction could be cut off from the rest,
    and a traceback that somebody keeps would then hold the engine for ever.
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
            raise InputError("an exclusive use was begun before; ask for another one")
        try:
            self._used = True
            return self._ask(Lease(self._held))
        except BaseException:
            self._held.release()
            raise
