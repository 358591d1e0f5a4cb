"""A team of threads that run plans: the loop over records, the barrier, and the threads."""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from trinity_kernels import forks
from trinity_kernels._jit import c_function, entry, inline
from trinity_kernels.atomics import (
    atomic_add,
    atomic_compare_exchange,
    atomic_load,
    atomic_store,
    call_kernel,
    call_void,
    pause,
    take_lock,
    untie_lock,
)
from trinity_kernels.crowding import Crowding
from trinity_kernels.isa import interpreted
from trinity_kernels.memory import get_i64, set_i64
from trinity_kernels.record import BARRIER, KERNEL, RECORD_BYTES
from trinity_kernels.uninterrupted import uninterrupted

# Byte offsets in the team's state. Words that different threads write are on different cache lines.
_ARRIVED, _GENERATION, _YIELD, _RECORDS, _COUNT, _ACTIVE = 0, 64, 128, 192, 200, 208
_TAKE, _UNTIE, _THREADS = 136, 144, 256
_PARKED, _JOB, _READY, _LOCK, _THREAD_BYTES = 0, 64, 72, 80, 128  # then for each thread
_STOP = -1  # in place of a job's count of records

# A pause takes some 10 to 40 ns: so many are longer than any wait between balanced operations, and
# than the Python between two tokens; whoever waits longer gives the core to others, then sleeps.
_SPINS, _IDLE_SPINS, _IDLE_YIELDS = 2000, 20000, 200


class TeamError(Exception):
    """The system cannot start more threads."""


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
            # Another process may need this core.
            call_void(get_i64(state + _YIELD))


@inline
def _walk(records: int, count: int, state: int, thread: int, threads: int) -> None:
    for i in range(count):
        record = records + i * RECORD_BYTES
        call_kernel(get_i64(record + 8 * KERNEL), record, thread, threads)
        if get_i64(record + 8 * BARRIER) != 0:
            _barrier(state, threads)
    _barrier(state, threads)


@inline
def _publish(state: int, records: int, count: int, threads: int) -> None:
    """Set the next job of the first ``threads`` threads, and wake those that sleep.

    The others do not see it, so they may take any time to notice that the last one has ended.
    """
    set_i64(state + _RECORDS, records)
    set_i64(state + _COUNT, count)
    set_i64(state + _ACTIVE, threads)
    for thread in range(1, threads):
        theirs = state + _THREADS + thread * _THREAD_BYTES
        atomic_add(theirs + _JOB, 1)
        if atomic_compare_exchange(theirs + _PARKED, 1, 0) == 1:
            untie_lock(get_i64(state + _UNTIE), get_i64(theirs + _LOCK))


@entry
def _run(state: int, records: int, count: int, threads: int) -> None:
    """Run a job, including the caller's share.

    This is one compiled call, because an exception may come between any two bytecodes of Python,
    and a published job must be finished.
    """
    _publish(state, records, count, threads)
    _walk(records, count, state, 0, threads)


def _stop(state: int, threads: int, reference: int) -> None:
    """Tell the workers to end; harmless if repeated. Also the callback of a weak reference."""
    if get_i64(state + _COUNT) != _STOP:
        _publish(state, 0, _STOP, threads)


@cache
def _stopper() -> Callable[[int, int, object], None]:
    """``_stop`` as a C function, which no exception of a signal handler can interrupt."""
    kind = ctypes.PYFUNCTYPE(None, ctypes.c_ssize_t, ctypes.c_ssize_t, ctypes.py_object)
    return kind(c_function(_stop, "intp", "intp", "intp"))


@entry
def _serve(state: int, thread: int) -> None:
    """Run a worker's jobs until it is told to end; it sleeps while there are none.

    It does not return to Python in between, where it might fail and leave the others waiting.
    """
    mine = state + _THREADS + thread * _THREAD_BYTES
    atomic_store(mine + _READY, 1)
    seen = 0
    while True:
        spins = 0
        while atomic_load(mine + _JOB) == seen and spins < _IDLE_SPINS + _IDLE_YIELDS:
            spins += 1
            if spins < _IDLE_SPINS:
                pause()
            else:
                call_void(get_i64(state + _YIELD))
        if atomic_load(mine + _JOB) == seen:
            atomic_compare_exchange(mine + _PARKED, 0, 1)
            # A publisher that takes the mark back unties the lock, else nobody does.
            if atomic_load(mine + _JOB) == seen or (
                atomic_compare_exchange(mine + _PARKED, 1, 0) != 1
            ):
                take_lock(get_i64(state + _TAKE), get_i64(mine + _LOCK))
        else:
            seen += 1
            count = get_i64(state + _COUNT)
            if count == _STOP:
                return
            threads = get_i64(state + _ACTIVE)
            _walk(get_i64(state + _RECORDS), count, state, thread, threads)


def _walk_python(records: int, count: int) -> None:
    from trinity_kernels._jit import python_kernel

    for i in range(count):
        record = records + i * RECORD_BYTES
        python_kernel(int(get_i64(record + 8 * KERNEL)))(record, 0, 1)


@cache
def _yield_address() -> int:
    """The address of the operating system's ``int f(void)`` that yields the core."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    return _address(function)


def _address(function: object) -> int:
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)  # type: ignore[arg-type]


class _Shared:
    """The memory that the threads of a team share: its state, and a lock for each to sleep on.

    The locks are Python's, which every platform has, used by C functions that need no GIL.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.forks = forks.count()
        self.memory = np.zeros((_THREADS + threads * _THREAD_BYTES) // 8 + 8, np.int64)
        self.state = -(-self.memory.ctypes.data // 64) * 64
        self.workers: list[threading.Thread] = []
        self.owner: weakref.ref[Team] | None = None
        api = ctypes.pythonapi
        self.word(_YIELD)[0] = _yield_address()
        self.word(_TAKE)[0] = _address(api.PyThread_acquire_lock)
        self.word(_UNTIE)[0] = _address(api.PyThread_release_lock)
        make, take = api.PyThread_allocate_lock, api.PyThread_acquire_lock
        make.restype, take.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int)
        locks: list[int] = []
        weakref.finalize(self, _free, locks).atexit = False
        for thread in range(1, threads):
            lock = make()
            if not lock:
                raise MemoryError
            locks.append(lock)
            take(lock, 1)
            self.word(_THREADS + thread * _THREAD_BYTES + _LOCK)[0] = lock

    def word(self, offset: int) -> NDArray[np.int64]:
        start = (self.state - self.memory.ctypes.data + offset) // 8
        return self.memory[start : start + 1]

    def ready(self, thread: int) -> bool:
        return bool(self.word(_THREADS + thread * _THREAD_BYTES + _READY)[0])


def _free(locks: list[int]) -> None:
    free = ctypes.pythonapi.PyThread_free_lock
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    for lock in locks:
        free(lock)


def _start(threads: int) -> _Shared:
    """Start the threads. Everything that may fail has happened when this returns."""
    trial = _Shared(1)  # compiles the loops, or loads them
    _run(trial.state, 0, 0, 1)
    _stopper()(trial.state, 1, None)
    trial.word(_THREADS + _JOB)[0] = 1
    _serve(trial.state, 0)
    shared = _Shared(threads)
    try:
        for thread in range(1, threads):
            worker = threading.Thread(
                target=_work, args=(shared, thread), name=f"trinity-{thread}", daemon=True
            )
            worker.start()
            shared.workers.append(worker)
        for thread, worker in enumerate(shared.workers, 1):
            while not shared.ready(thread):
                if not worker.is_alive():
                    raise MemoryError
                time.sleep(0.0001)
    except (RuntimeError, MemoryError) as error:
        count = len(shared.workers)
        _end(shared)
        raise TeamError(
            f"only {count + 1} of {threads} threads could be started, the system refuses more "
            f"({error or 'out of memory'}); use fewer threads, or raise the limit of processes "
            "(ulimit -u) or of memory"
        ) from error
    return shared


def _work(shared: _Shared, thread: int) -> None:
    _serve(shared.state, thread)


def _end(shared: _Shared) -> None:
    """End the threads and wait for them; may be repeated after an interruption."""
    if shared.forks != forks.count():
        return  # they are the parent's
    _stopper()(shared.state, shared.threads, None)
    for worker in shared.workers:
        worker.join()


class Team:
    """``threads`` threads, including the caller, that run plans one after the other.

    Fewer run while other programs use the cores (crowding.py), unless ``all_run`` is set. Idle
    threads sleep. They end when the team is closed or no longer referenced. After a fork the
    child's first ``run`` starts new threads. Calls from two threads wait for each other.

    Raises: TeamError if the system cannot start more threads.
    """

    def __init__(self, threads: int, *, all_run: bool = False) -> None:
        self.threads = 1 if interpreted() else threads
        self._all_run = all_run
        self._closed = False
        self._forks = forks.count()
        # Reentrant, because a signal handler may run between a step's end and the lock's release.
        self._mutex = threading.RLock()
        if not interpreted():
            uninterrupted(self._make)

    def _make(self) -> None:
        self._shared = shared = _start(self.threads)
        # The threads hold what they share, and with it this reference.
        shared.owner = weakref.ref(self, partial(_stopper(), shared.state, shared.threads))
        self._crowding = Crowding([worker.native_id or 0 for worker in shared.workers])
        _alive.add(shared)

    def run(self, records: NDArray[np.void]) -> None:
        """Run the plan, and return when every thread has finished.

        Raises: RuntimeError after ``close``; TeamError as the constructor, after a fork.
        """
        if self._forks != forks.count():
            self._after_fork()
        with self._mutex:
            if self._closed:
                raise RuntimeError("the team is closed")
            if interpreted():
                _walk_python(records.ctypes.data, len(records))
                return
            began = time.perf_counter()
            active = self.threads if self._all_run else self._crowding.active
            _run(self._shared.state, records.ctypes.data, len(records), active)
            self._crowding.ran(began)

    def _after_fork(self) -> None:
        with forks.renewing():
            if self._forks != forks.count():
                self._mutex = threading.RLock()
                if not interpreted() and not self._closed:
                    self._shared.owner = None
                    uninterrupted(self._make)
                self._forks = forks.count()

    def close(self) -> None:
        """End the threads."""
        if self._forks != forks.count():
            self._after_fork()
        with self._mutex:
            self._closed = True
            if not interpreted():
                _end(self._shared)


_alive: weakref.WeakSet[_Shared] = weakref.WeakSet()


@atexit.register
def _end_threads() -> None:
    """End all teams, because no thread may be in compiled code while the interpreter shuts down."""
    for shared in list(_alive):
        _end(shared)
