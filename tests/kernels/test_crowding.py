"""How many threads run: what other programs take, trials of more threads, fewer cores."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest

from tests.kernels.process import run_python
from trinity_kernels import crowding
from trinity_kernels.crowding import Crowding

WORKERS = (71, 72, 73)


class Machine:
    """A clock, cores, and threads that lose parts of the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int = 4) -> None:
        self.now, self.cores = 100.0, cores
        self.lost: dict[int, float] = dict.fromkeys((threading.get_native_id(), *WORKERS), 0.0)
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr(crowding, "time", clock)
        monkeypatch.setattr(crowding, "default_threads", lambda: self.cores)
        monkeypatch.setattr(crowding, "_lost", self._lost)
        self.threads = Crowding(WORKERS)
        self.run(0.2, 0.0)

    def _lost(self, thread: int) -> int | None:
        return int(self.lost[thread] * 1e9) if thread in self.lost else None

    def run(self, seconds: float, share: float) -> None:
        """Steps of 10 ms; the second thread loses ``share`` of the time if it runs."""
        for _ in range(round(seconds * 100)):
            began = self.now
            self.now += 0.01
            if self.threads.active > 1 and self.lost:
                self.lost[WORKERS[0]] += 0.01 * share
            self.threads.ran(began)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_all_threads_run_on_a_quiet_machine(machine: Machine) -> None:
    machine.run(20, 0.0)
    assert machine.threads.active == 4


def test_short_interruptions_stop_no_thread(machine: Machine) -> None:
    machine.run(20, 0.25)
    assert machine.threads.active == 4


def test_threads_stop_while_others_lose_half_of_the_time(machine: Machine) -> None:
    machine.run(0.5, 0.5)
    assert machine.threads.active == 1
    machine.run(60, 0.5)
    counts = []
    for _ in range(400):
        machine.run(0.1, 0.5)
        counts.append(machine.threads.active)
    assert set(counts) == {1, 2}
    assert 1 <= counts.count(2) <= 10
    machine.run(20, 0.0)
    assert machine.threads.active == 4


def test_threads_follow_the_cores_that_may_be_used(machine: Machine) -> None:
    machine.cores = 2
    machine.run(6, 0.0)
    assert machine.threads.active == 2
    machine.cores = 4
    machine.run(7, 0.0)
    assert machine.threads.active == 4


def test_more_threads_than_cores_stay_if_the_cores_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, cores=2)
    machine.run(20, 0.0)
    assert machine.threads.active == 4


def test_a_system_that_does_not_say_what_threads_lose(machine: Machine) -> None:
    machine.lost = {}
    machine.run(5, 0.5)
    assert machine.threads.active == 4


ONE_CORE = """
import os
import time
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from tests.kernels.test_team import Steps
from trinity_kernels.team import Team
team, plan = Team(2), Steps(2, 5).plan
ends = time.monotonic() + 60
while team._crowding.active == 2 and time.monotonic() < ends:
    team.run(plan)
print(team._crowding.active)
team.close()
"""


@pytest.mark.full
@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="the system does not say what threads lose"
)
def test_one_of_two_threads_on_one_core_stops() -> None:
    assert run_python(ONE_CORE).strip() == "1"
