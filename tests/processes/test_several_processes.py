"""Several confined processes of one module: a call waits only if all are busy."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from tests.processes.test_confined import MODULE
from tests.processes.test_model_processes import needs_fork
from trinity.errors import ConfinedError, ConfinedUnavailableError
from trinity.processes.child_process import ChildProcess
from trinity.processes.confined import Confined


@pytest.fixture
def pool() -> Iterator[Confined]:
    made = Confined(MODULE, memory_bytes=64_000_000, seconds=10.0, processes=2)
    yield made
    made.close()


def busy(pool: Confined) -> list[bool]:
    return [process.is_busy for process in pool._processes]


def test_a_slow_request_delays_no_other(pool: Confined) -> None:
    slow = threading.Thread(target=lambda: _stopped(pool, ["forever", None]))
    slow.start()
    while busy(pool) != [True, False]:
        pass
    assert [pool.call(["echo", number]) for number in range(5)] == list(range(5))
    assert slow.is_alive()
    pool._processes[0].child._kill()  # type: ignore[union-attr]
    slow.join()
    assert busy(pool) == [False, False]


def _stopped(pool: Confined, request: object) -> None:
    with pytest.raises(ConfinedError):
        pool.call(request)


def test_processes_start_when_they_are_needed(pool: Confined) -> None:
    for number in range(3):
        pool.call(["echo", number])
    assert [one.child is not None for one in pool._processes] == [True, False]


def test_a_call_waits_for_the_first_process_that_is_free(
    pool: Confined, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one takes long to start, so the call gets the first one again."""
    pool.call(["echo", 0])
    first, second = pool._processes
    starting, may_start = threading.Event(), threading.Event()
    start = second.start

    def slow_start() -> ChildProcess:
        starting.set()
        may_start.wait()
        return start()

    monkeypatch.setattr(second, "start", slow_start)
    first.is_busy = True
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(pool.call(["echo", 1])))
    waiting.start()
    starting.wait()
    assert got == []
    pool._free(first)
    waiting.join()
    assert got == [1]
    assert busy(pool) == [False, True]
    may_start.set()
    while busy(pool) != [False, False]:
        pass
    assert second.child is not None


def test_a_long_request_starts_a_process_for_other_calls(pool: Confined) -> None:
    pool.call(["echo", "x" * (1 << 17)])
    while pool._processes[1].child is None or busy(pool) != [False, False]:
        pass
    assert pool.call(["echo", 1]) == 1


def test_a_call_waits_where_no_other_process_can_start(
    pool: Confined, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool.call(["echo", 0])
    first, second = pool._processes
    failed = threading.Event()

    def refuse() -> ChildProcess:
        failed.set()
        raise ConfinedUnavailableError("none", "none")

    monkeypatch.setattr(second, "start", refuse)
    first.is_busy = True
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(pool.call(["echo", 1])))
    waiting.start()
    failed.wait()
    pool._free(first)
    waiting.join()
    assert got == [1]


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
    pool._freed.acquire()  # as a thread of the parent may at the moment of the fork
    pool._processes[0].is_busy = True
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if pool.call(["echo", 2]) == 2 and busy(pool) == [False] * 2 else 2
            pool.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    pool._freed.release()
    pool._processes[0].is_busy = False
    assert pool.call(["echo", 3]) == 3
