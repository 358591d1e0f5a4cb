"""Threads that walk a plan together: the walk, the barrier, and the team that owns the threads."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trinity_kernels._jit import entry, inline
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_i64
from trinity_kernels.record import BARRIER, KERNEL, RECORD_BYTES

if not jit_disabled():
    from trinity_kernels.simd import (
        atomic_add,
        atomic_load,
        atomic_store,
        call_kernel,
        call_void,
        pause,
    )

_ARRIVED, _GENERATION, _YIELD = 0, 64, 128  # byte offsets in the team's state, one line each
_STATE_WORDS = 24
_SPINS = 4000  # some 50 microseconds: longer than any wait between balanced operations


@inline
def _barrier(state: int, threads: int) -> None:
    if threads == 1:
        return
    generation = atomic_load(state + 64)
    if atomic_add(state, 1) == threads - 1:
        atomic_store(state, 0)
        atomic_add(state + 64, 1)
        return
    spins = 0
    while atomic_load(state + 64) == generation:
        spins += 1
        if spins < 4000:
            pause()
        else:
            # Somebody waits for a core: let it have this one.
            call_void(get_i64(state + 128))


@entry
def _walk(records: int, count: int, state: int, thread: int, threads: int) -> None:
    for i in range(count):
        record = records + i * RECORD_BYTES
        call_kernel(get_i64(record + 8 * KERNEL), record, thread, threads)
        if get_i64(record + 8 * BARRIER) != 0:
            _barrier(state, threads)
    _barrier(state, threads)


def _walk_python(records: int, count: int) -> None:
    from trinity_kernels._jit import python_kernel

    for i in range(count):
        record = records + i * RECORD_BYTES
        python_kernel(int(get_i64(record + 8 * KERNEL)))(record, 0, 1)


@cache
def _yield_address() -> int:
    """The address of the operating system's ``int f(void)`` that gives the core away."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)


class Team:
    """``threads`` threads, the caller among them, that run plans one after the other.

    Idle threads sleep. ``run`` must not be called from two threads at once.
    """

    def __init__(self, threads: int) -> None:
        self.threads = 1 if jit_disabled() else threads
        self._state = np.zeros(_STATE_WORDS, np.int64)
        if not jit_disabled():
            self._state[_YIELD // 8] = _yield_address()
        self._job = (0, 0)
        self._closed = False
        self._wake = [threading.Semaphore(0) for _ in range(self.threads - 1)]
        self._workers = [
            threading.Thread(
                target=self._work, args=(i + 1,), name=f"trinity-{i + 1}", daemon=True
            )
            for i in range(self.threads - 1)
        ]
        for worker in self._workers:
            worker.start()

    def _work(self, thread: int) -> None:
        wake, state = self._wake[thread - 1], self._state.ctypes.data
        while True:
            wake.acquire()
            if self._closed:
                return
            records, count = self._job
            _walk(records, count, state, thread, self.threads)

    def run(self, records: NDArray[np.void]) -> None:
        """Walk the plan; returns when every thread is through."""
        if self._closed:
            raise RuntimeError("the team is closed")
        address = records.ctypes.data
        if jit_disabled():
            _walk_python(address, len(records))
            return
        self._job = (address, len(records))
        for wake in self._wake:
            wake.release()
        _walk(address, len(records), self._state.ctypes.data, 0, self.threads)

    def close(self) -> None:
        """End the threads."""
        if not self._closed:
            self._closed = True
            for wake in self._wake:
                wake.release()
            for worker in self._workers:
                worker.join()


def _cgroup_cpus() -> int | None:
    """Whole CPUs that the container's quota grants."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        if quota != "max":
            return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        pass
    try:
        base = Path("/sys/fs/cgroup/cpu")
        quota_us = int((base / "cpu.cfs_quota_us").read_text())
        if quota_us > 0:
            return max(1, quota_us // int((base / "cpu.cfs_period_us").read_text()))
    except (OSError, ValueError):
        pass
    return None


def default_threads() -> int:
    """Physical cores that this process may use: affinity and container limits included."""
    if hasattr(os, "sched_getaffinity"):
        cpus = os.sched_getaffinity(0)
    else:
        cpus = set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in cpus:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text().strip())
        except OSError:
            cores.add(str(cpu))
    count = len(cores)
    if sys.platform == "darwin":
        try:
            libc = ctypes.CDLL(None)
            value, size = ctypes.c_int(0), ctypes.c_size_t(4)
            name = b"hw.perflevel0.physicalcpu"
            if libc.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, 0) == 0:
                count = value.value or count
        except (OSError, AttributeError):
            pass
    limit = _cgroup_cpus()
    return max(1, min(count, limit) if limit else count)
