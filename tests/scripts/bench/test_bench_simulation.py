"""The fits of measured steps and prompts."""

from __future__ import annotations

import pytest

from scripts.bench.bench_simulation import costs_of_prompts, costs_of_steps, fitted, load_of
from scripts.bench.replica_simulation import Cluster, Costs, simulated
from trinity.runtime.scheduling.step_costs import StepTimes, pairs


def test_costs_of_steps() -> None:
    times = costs_of_steps({number: 0.010 + 0.002 * number for number in (1, 2, 4, 8)})
    assert times.step == pytest.approx(0.010)
    assert times.running == pytest.approx(0.002)


def test_costs_of_prompts() -> None:
    lengths = [32, 32, 96, 192, 448]
    seconds = [0.004 + 0.001 * n + 1e-6 * pairs(0, n) for n in lengths]
    assert costs_of_prompts(lengths, seconds) == pytest.approx((0.004, 0.001, 1e-6))


def test_no_cost_is_negative() -> None:
    assert fitted([1.0, 1.0, 1.0], [1, 1, 1], [1, 2, 3]) == pytest.approx([1.0, 0.0], abs=1e-9)
    found = fitted([3.0, 2.0, 1.0], [1, 1, 1], [1, 2, 3])
    assert min(found) >= 0


def test_the_compared_load_leaves_room() -> None:
    class Options:
        conversations, rate = 40, None

    costs, cluster = Costs(StepTimes(step=0.01, running=0.001, row=0.0005)), Cluster(2)
    load = load_of(Options, costs, cluster)  # type: ignore[arg-type]
    found = simulated(load.drawn(1), costs, cluster)
    assert 0.2 < found.busy_seconds / found.replica_seconds < 0.95
