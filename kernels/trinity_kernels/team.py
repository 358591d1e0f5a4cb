"""Threads that walk a plan together: the walk, the barrier, and the team that owns the threads."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trinity_kernels._jit import entry, inline
from trinity_kernels.isa import jit_disabled
from trinity_kernels.memory import get_i64, set_i64
from trinity_kernels.record import BARRIER, KERNEL, RECORD, RECORD_BYTES

if not jit_disabled():
    from trinity_kernels.atomics import (
        atomic_add,
        atomic_compare_exchange,
        atomic_load,
        atomic_store,
        call_kernel,
        call_void,
        pause,
    )

# Byte offsets in the team's state; what different threads write lies on different cache lines.
_ARRIVED, _GENERATION, _YIELD, _JOB, _RECORDS, _COUNT, _THREADS = 0, 64, 128, 192, 256, 264, 320
_SEEN, _PARKED, _THREAD_BYTES = 0, 64, 128  # then for each thread

# A pause takes some 40 ns: longer than any wait between balanced operations, and than the Python
# between two tokens; whoever waits longer gives the core to others, then sleeps.
_SPINS, _IDLE_SPINS, _IDLE_YIELDS = 2000, 20000, 200


@inline
def _barrier(state: int, threads: int) -> None:
    if threads == 1:
        return
    generation = atomic_load(state + _GENERATION)
    if atomic_add(state + _ARRIVED, 1) == threads - 1:
        atomic_store(state + _ARRIVED, 0)
        atomic_add(state + _GENERATION, 1)
        return
    spins = 0
    while atomic_load(state + _GENERATION) == generation:
        spins += 1
        if spins < _SPINS:
            pause()
        else:
            # Somebody waits for a core: let it have this one.
            call_void(get_i64(state + _YIELD))


@inline
def _walk(records: int, count: int, state: int, thread: int, threads: int) -> None:
    for i in range(count):
        record = records + i * RECORD_BYTES
        call_kernel(get_i64(record + 8 * KERNEL), record, thread, threads)
        if get_i64(record + 8 * BARRIER) != 0:
            _barrier(state, threads)
    _barrier(state, threads)


@entry
def _lead(state: int, threads: int) -> None:
    """The caller's part of a job."""
    _walk(get_i64(state + _RECORDS), get_i64(state + _COUNT), state, 0, threads)


@entry
def _publish(state: int, records: int, count: int, threads: int) -> int:
    """Set the next job; the number of threads that sleep, each marked by _PARKED = 2."""
    set_i64(state + _RECORDS, records)
    set_i64(state + _COUNT, count)
    atomic_add(state + _JOB, 1)
    asleep = 0
    for thread in range(1, threads):
        parked = state + _THREADS + thread * _THREAD_BYTES + _PARKED
        if atomic_compare_exchange(parked, 1, 2) == 1:
            asleep += 1
    return asleep


@entry
def _serve(state: int, thread: int, threads: int) -> None:
    """A worker's jobs, one after the other; returns, marked as parked, after a while without."""
    mine = state + _THREADS + thread * _THREAD_BYTES
    seen = get_i64(mine + _SEEN)
    while True:
        spins = 0
        while atomic_load(state + _JOB) == seen and spins < _IDLE_SPINS + _IDLE_YIELDS:
            spins += 1
            if spins < _IDLE_SPINS:
                pause()
            else:
                call_void(get_i64(state + _YIELD))
        if atomic_load(state + _JOB) == seen:
            atomic_compare_exchange(mine + _PARKED, 0, 1)
            if atomic_load(state + _JOB) == seen:
                return
            if atomic_compare_exchange(mine + _PARKED, 1, 0) != 1:
                # A job came meanwhile, and its publisher is about to wake this thread.
                return
        seen += 1
        set_i64(mine + _SEEN, seen)
        _walk(get_i64(state + _RECORDS), get_i64(state + _COUNT), state, thread, threads)


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


class _Shared:
    """What the threads of a team share: its state in memory and a lock each to sleep on."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.memory = np.zeros((_THREADS + threads * _THREAD_BYTES) // 8 + 8, np.int64)
        self.state = -(-self.memory.ctypes.data // 64) * 64
        self.closed = False
        self.wake = [threading.Lock() for _ in range(threads - 1)]
        for thread, wake in enumerate(self.wake, 1):
            wake.acquire()
            self.word(_THREADS + thread * _THREAD_BYTES + _PARKED)[0] = 1

    def word(self, offset: int) -> NDArray[np.int64]:
        start = (self.state - self.memory.ctypes.data + offset) // 8
        return self.memory[start : start + 1]

    def work(self, thread: int) -> None:
        wake = self.wake[thread - 1]
        while True:
            wake.acquire()
            if self.closed:
                return
            _serve(self.state, thread, self.threads)

    def wake_parked(self) -> None:
        for thread, wake in enumerate(self.wake, 1):
            word = self.word(_THREADS + thread * _THREAD_BYTES + _PARKED)
            if word[0] == 2:
                word[0] = 0
                wake.release()


def _end(shared: _Shared, workers: list[threading.Thread]) -> None:
    shared.closed = True
    # One that still waits for work comes to its lock within milliseconds.
    for wake, worker in zip(shared.wake, workers, strict=True):
        while worker.is_alive():
            if wake.locked():
                wake.release()
            worker.join(0.01)


class Team:
    """``threads`` threads, the caller among them, that run plans one after the other.

    Idle threads sleep; they end when the team is closed or no longer referenced. ``run`` must not
    be called from two threads at once.
    """

    def __init__(self, threads: int) -> None:
        self.threads = 1 if jit_disabled() else threads
        self._shared = shared = _Shared(self.threads)
        if not jit_disabled():
            shared.word(_YIELD)[0] = _yield_address()
        workers = [
            threading.Thread(
                target=shared.work, args=(i + 1,), name=f"trinity-{i + 1}", daemon=True
            )
            for i in range(self.threads - 1)
        ]
        for worker in workers:
            worker.start()
        self._finalizer = weakref.finalize(self, _end, shared, workers)

    def run(self, records: NDArray[np.void]) -> None:
        """Walk the plan; returns when every thread is through."""
        shared = self._shared
        if shared.closed:
            raise RuntimeError("the team is closed")
        address = records.ctypes.data
        if jit_disabled():
            _walk_python(address, len(records))
            return
        if _publish(shared.state, address, len(records), self.threads):
            shared.wake_parked()
        _lead(shared.state, self.threads)

    def warmup(self) -> None:
        """Compile the team's own loops, or load them from the cache."""
        self.run(np.zeros(0, RECORD))

    def close(self) -> None:
        """End the threads."""
        self._finalizer()


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
