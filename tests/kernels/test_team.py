"""Teams of threads: barriers, sleeping, waking and ending."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.matrix import some
from tests.processor_time import within
from trinity_kernels import record
from trinity_kernels._jit import kernel
from trinity_kernels.memory import get_i64, set_i64
from trinity_kernels.team import Team

COUNTERS, ERRORS = 3, 4
LINE = 8  # int64 in a cache line


@kernel
def advance(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """Each thread adds 1 to its own counter."""
    mine = get_i64(record + 8 * COUNTERS) + 64 * thread
    set_i64(mine, get_i64(mine) + 1)


@kernel
def compare(isa: Any, qt: Any, record: int, thread: int, threads: int) -> None:
    """After a barrier all counters are equal; each thread counts those that are not."""
    counters = get_i64(record + 8 * COUNTERS)
    errors = get_i64(record + 8 * ERRORS) + 64 * thread
    for other in range(threads):
        if get_i64(counters + 64 * other) != get_i64(counters + 64 * thread):
            set_i64(errors, get_i64(errors) + 1)


class Steps:
    """A plan that repeats advance, barrier, compare, barrier."""

    def __init__(self, threads: int, pairs: int) -> None:
        self.counters = np.zeros((threads, LINE), np.int64)
        self.errors = np.zeros((threads, LINE), np.int64)
        self.pairs = pairs
        self.plan: NDArray[np.void] = np.zeros(2 * pairs, record.RECORD)
        slots = self.plan["slots"]
        slots[::2, record.KERNEL] = advance.address("portable")
        slots[1::2, record.KERNEL] = compare.address("portable")
        slots[:, record.BARRIER] = 1
        slots[:, COUNTERS] = self.counters.ctypes.data
        slots[:, ERRORS] = self.errors.ctypes.data

    def check(self, runs: int) -> None:
        assert self.counters[:, 0].tolist() == [runs * self.pairs] * len(self.counters)
        assert not self.errors.any()


@pytest.mark.parametrize("threads", some([1, 2, 3, 4], [1, 2]))
def test_every_thread_walks_every_record(threads: int) -> None:
    steps, team = Steps(threads, 5), Team(threads, all_run=True)
    for _ in range(300):
        team.run(steps.plan)
    team.close()
    steps.check(300)


@pytest.mark.full
def test_sleeping_threads_wake() -> None:
    steps, team = Steps(3, 5), Team(3, all_run=True)
    for i in range(30):
        team.run(steps.plan)
        time.sleep((0, 0.001, 0.05)[i % 3])
    team.close()
    steps.check(30)


def test_idle_threads_use_no_processor_time() -> None:
    team = Team(3, all_run=True)
    team.run(Steps(3, 1).plan)
    deadline = time.monotonic() + 60
    used = 1.0
    while used > 0.03 and time.monotonic() < deadline:  # until they have given up waiting
        before = time.process_time()
        time.sleep(0.2)
        used = time.process_time() - before
    team.close()
    assert used <= 0.03


@pytest.mark.full
def test_more_threads_than_cores_end_in_time() -> None:
    steps, team = Steps(12, 10), Team(12, all_run=True)
    within(60.0, lambda: [team.run(steps.plan) for _ in range(50)], time.process_time)
    team.close()
    steps.check(50)


def test_teams_do_not_disturb_each_other() -> None:
    """Two teams work in two Python threads."""
    all_steps = [Steps(2, 5), Steps(2, 5)]

    def work(steps: Steps) -> None:
        team = Team(2, all_run=True)
        for _ in range(300):
            team.run(steps.plan)
        team.close()

    workers = [threading.Thread(target=work, args=(steps,)) for steps in all_steps]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    for steps in all_steps:
        steps.check(300)


def _workers() -> int:
    return sum(thread.name.startswith("trinity-") for thread in threading.enumerate())


def test_closing_ends_the_threads() -> None:
    before = _workers()
    team = Team(3, all_run=True)
    team.run(Steps(3, 1).plan)
    assert _workers() == before + 2
    team.close()
    assert _workers() == before
    team.close()
    with pytest.raises(RuntimeError, match="closed"):
        team.run(Steps(3, 1).plan)


def test_a_forgotten_team_ends_its_threads() -> None:
    """Its threads end even if an exception interrupts the finalizer."""
    before = _workers()
    team = Team(2, all_run=True)
    team.run(Steps(2, 1).plan)

    def interrupt(*event: object) -> None:
        raise KeyboardInterrupt

    saved = sys.gettrace()
    sys.settrace(interrupt)  # at the first call of Python code
    try:
        del team
    finally:
        sys.settrace(saved)
    deadline = time.monotonic() + 60
    while _workers() > before and time.monotonic() < deadline:
        time.sleep(0.001)
    assert _workers() == before


def test_closing_twice_and_in_two_threads() -> None:
    team = Team(3, all_run=True)
    closers = [threading.Thread(target=team.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(60)
    assert not any(closer.is_alive() for closer in closers)


def test_two_threads_that_run_one_team_wait_for_each_other() -> None:
    steps, team = Steps(2, 5), Team(2, all_run=True)
    workers = [
        threading.Thread(target=lambda: [team.run(steps.plan) for _ in range(200)])
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    team.close()
    steps.check(400)


@pytest.mark.full
def test_exceptions_from_outside_leave_the_team_whole() -> None:
    """Signal handlers and other threads can raise an exception between any two bytecodes."""
    steps, team = Steps(3, 5), Team(3, all_run=True)
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    stopped, caught = threading.Event(), []

    def run_until_stopped() -> None:
        while not stopped.is_set():
            try:
                while not stopped.is_set():
                    team.run(steps.plan)
                time.sleep(0.01)  # for the last exception
            except KeyboardInterrupt:
                caught.append(1)

    def run() -> None:
        # An exception may also come while another one is handled.
        while not stopped.is_set():
            with contextlib.suppress(KeyboardInterrupt):
                run_until_stopped()

    # A thread of its own: no exception shall reach who runs the tests.
    runner = threading.Thread(target=run)
    runner.start()
    deadline = time.monotonic() + 60
    while len(caught) < 200 and time.monotonic() < deadline:
        time.sleep(0.001)
        raise_in(ctypes.c_ulong(runner.ident or 0), ctypes.py_object(KeyboardInterrupt))
    stopped.set()
    runner.join()
    assert len(caught) >= 200
    done = int(steps.counters[0, 0])
    assert done % steps.pairs == 0
    steps.check(done // steps.pairs)
    team.run(steps.plan)
    steps.check(done // steps.pairs + 1)
    team.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    steps, team = Steps(3, 5), Team(3, all_run=True)
    team.run(steps.plan)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            team.run(steps.plan)
            steps.check(2)
            assert _workers() >= 2
            team.close()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + 60
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if done[0] == 0:
        os.kill(child, 9)
    assert done == (child, 0)
    team.run(steps.plan)
    steps.check(2)
    team.close()
