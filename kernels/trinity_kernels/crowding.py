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
# One of N threads stops if the others lose more than OF_ONE / N of their time, and LEAST_LOST. It
# is less than 1/N, because N - 1 threads get more of the memory's bandwidth than their share.
OF_ONE, LEAST_LOST = 0.9, 0.3
# Seconds after which one more thread is tried: the first time, and at most, after vain trials.
FIRST_TRIAL, LAST_TRIAL = 0.5, 8.0
# Seconds after which the cores are counted that this process may use.
COUNTED: Final = 5.0


class Crowding:
    """Chooses ``active``, how many of a team's threads run."""

    def __init__(self, workers: Sequence[int]) -> None:
        """``workers``: the system's ids of the threads beside the one that calls ``ran``."""
        self.active = self._threads = self._most = 1 + len(workers)
        self._workers = workers
        self._ran = 0.0  # seconds in this window
        self._lost: dict[int, int] = {}  # nanoseconds of each thread at its beginning
        self._trial_after, self._trial_at, self._is_trial = FIRST_TRIAL, 0.0, False
        self._cores, self._counted_at = default_threads(), time.perf_counter()

    def ran(self, began: float) -> None:
        """Choose again if it is time; ``began``: the time before a run that has ended."""
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
