"""Several confined processes of one module, so that a slow request does not delay all others."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Any

from trinity.confined import Confined
from trinity.errors import ConfinedError, ConfinedUnavailableError


class ConfinedPool:
    """Up to ``count`` processes, each started when all others are busy.

    ``limits`` are those of `Confined`. A call goes to the process with the fewest callers. Calls
    wait for each other only if there are more of them than processes.
    """

    def __init__(self, module: str, count: int, **limits: Any) -> None:
        self.processes = [Confined(module, **limits) for _ in range(count)]
        self._callers = [0] * count
        self._choosing = threading.Lock()
        _ALL.add(self)

    def call(self, request: Any, *, more_seconds: float = 0.0) -> Any:
        """As `Confined.call`. A caller whose request ends the process starts the next one."""
        with self._choosing:
            place = self._callers.index(min(self._callers))
            self._callers[place] += 1
        process = self.processes[place]
        try:
            return process.call(request, more_seconds=more_seconds)
        except ConfinedUnavailableError:
            raise
        except ConfinedError:
            with contextlib.suppress(ConfinedError):
                process.start()
            raise
        finally:
            with self._choosing:
                self._callers[place] -= 1

    def close(self) -> None:
        """End the processes; a later call starts others."""
        for process in self.processes:
            process.close()

    def _forget(self) -> None:
        """After fork(): callers and the lock are the other process's."""
        self._choosing = threading.Lock()
        self._callers = [0] * len(self.processes)


_ALL: weakref.WeakSet[ConfinedPool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_ALL):
        pool._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
