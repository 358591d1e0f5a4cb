"""Several confined processes of one module: a call waits only if all are busy."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from tests.processes.test_confined import MODULE
from tests.processes.test_model_processes import needs_fork
from trinity.errors import ConfinedError
from trinity.processes.confined import Confined


@pytest.fixture
def pool() -> Iterator[Confined]:
    made = Confined(MODULE, memory_bytes=64_000_000, seconds=10.0, processes=2)
    yield made
    made.close()


def callers(pool: Confined) -> list[int]:
    return [process.callers for process in pool._processes]


def test_a_slow_request_delays_no_other(pool: Confined) -> None:
    slow = threading.Thread(target=lambda: _stopped(pool, ["forever", None]))
    slow.start()
    while callers(pool) != [1, 0]:
        pass
    assert [pool.call(["echo", number]) for number in range(5)] == list(range(5))
    assert slow.is_alive()
    pool._processes[0].child._kill()  # type: ignore[union-attr]
    slow.join()
    assert callers(pool) == [0, 0]


def _stopped(pool: Confined, request: object) -> None:
    with pytest.raises(ConfinedError):
        pool.call(request)


def test_processes_start_when_they_are_needed(pool: Confined) -> None:
    for number in range(3):
        pool.call(["echo", number])
    assert [one.child is not None for one in pool._processes] == [True, False]


def test_whoever_ends_a_process_starts_the_next_one(pool: Confined) -> None:
    pid, _ = pool.call(["calls", None])
    with pytest.raises(ConfinedError, match="it ended with status 3"):
        pool.call(["leave", 3])
    child = pool._processes[0].child
    assert child is not None
    assert child.process.pid != pid
    assert pool.call(["calls", None]) == [child.process.pid, 1]


@needs_fork
def test_a_fork_beside_a_call_leaves_a_pool_of_its_own(pool: Confined) -> None:
    pool.call(["echo", 1])
    pool._choosing.acquire()  # as a thread of the parent may at the moment of the fork
    pool._processes[0].callers += 1
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if pool.call(["echo", 2]) == 2 and callers(pool) == [0, 0] else 2
            pool.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    pool._choosing.release()
    pool._processes[0].callers -= 1
    assert pool.call(["echo", 3]) == 3
