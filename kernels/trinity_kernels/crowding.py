"""How many threads of a team run while other programs use its cores.

Threads share each operation equally. A thread whose core also runs another program gets half of
it, and the others wait for that thread: two such threads on two cores are slower than one. Linux
says for how long each thread had no core. Elsewhere all threads always run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Final

from trinity_kernels.cores import default_threads

# Seconds of running after which the number is chosen again.
WINDOW: Final = 0.1
# A step waits whenever any thread has no core. If that is more than the part OF_ONE / N of the time
# for N threads, and more than LEAST_LOST, one thread stops. OF_ONE is less than 1, because N - 1
# threads get more than the part (N - 1) / N of the memory's bandwidth.
OF_ONE, LEAST_LOST = 0.9, 0.3
# Seconds until one more thread is tried. Each trial that fails doubles them, up to LAST_TRIAL.
FIRST_TRIAL, LAST_TRIAL = 0.5, 8.0
# Seconds after which the cores that this process may use are counted again.
COUNTED: Final = 5.0


class Crowding:
    """Chooses ``active``, how many of a team's threads run."""

    def __init__(self, workers: Sequence[int]) -> None:
        """``workers``: the system's ids of all threads but the one that calls ``ran``."""
        self.active = self._threads = self._most = 1 + len(workers)
        self._workers = workers
        self._ran = 0.0  # seconds in this window
        self._lost: dict[int, int] = {}  # nanoseconds of each thread before the window
        self._trial_after, self._trial_at, self._is_trial = FIRST_TRIAL, 0.0, False
        self._cores = default_threads() if workers else 1
        self._counted_at = time.perf_counter()

    def ran(self, began: float) -> None:
        """Count a run from ``began`` until now, and choose if the window has ended."""
        now = time.perf_counter()
        self._ran += now - began
        if self._ran >= WINDOW and self._threads > 1:
            self._choose(now)

    def _choose(self, now: float) -> None:
        before, seconds = self._lost, self._ran
        active = (threading.get_native_id(), *self._workers[: self.active - 1])
        found = {thread: _lost(thread) for thread in (active[0], *self._workers)}
        self._lost = {thread: lost for thread, lost in found.items() if lost is not None}
        self._ran = 0.0
        both = self._lost.keys() & before.keys() & {*active}
        lost = sum(self._lost[thread] - before[thread] for thread in both) / 1e9 / seconds
        if self.active > 1 and lost > max(LEAST_LOST, OF_ONE / self.active):
            self.active -= 1
            self._trial_at, self._is_trial = now + self._trial_after, False
            self._trial_after = min(2 * self._trial_after, LAST_TRIAL)
            return
        if self._is_trial:
            self._trial_after, self._is_trial = FIRST_TRIAL, False
        if now >= self._counted_at + COUNTED:
            self._count(now)
        if self.active < self._most and now >= self._trial_at:
            self.active += 1
            self._is_trial = True

    def _count(self, now: float) -> None:
        """Follow the cores that the process may use, if they are fewer than at the beginning."""
        cores = default_threads()
        self._most = self._threads if cores >= self._cores else min(self._threads, cores)
        self.active = min(self.active, self._most)
        self._counted_at = now


def _lost(thread: int) -> int | None:
    """Nanoseconds for which a thread was ready to run and had no core; None if unknown.

    Source: Linux, Documentation/scheduler/sched-stats.rst.
    """
    try:
        file = os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return int(os.read(file, 100).split()[1])
    except (OSError, IndexError, ValueError):
        return None
    finally:
        os.close(file)
