"""What a scheduler tells of its work."""

from __future__ import annotations

import pytest

from trinity.runtime.scheduler_stats import SchedulerStats
from trinity.runtime.step_costs import FIRST_ROWS, StepCosts
from trinity.runtime.step_times import StepTimes


def test_times_are_those_of_the_prompts_first_and_of_the_soonest_end() -> None:
    costs = StepCosts(0.1, StepTimes(0.05, 0.002, 0.004, 0.01), most=50)
    work = SchedulerStats(
        waiting=3, running=2, pending_tokens=10, next_tokens=15, soonest_end=20, most_rows=512,
        costs=costs,
    )  # fmt: skip
    assert costs.prompt_rows(2, 3) == 9
    assert work.evaluation_seconds == pytest.approx(25 * 0.01 + 3 * 0.058)
    assert work.seconds_until_end == pytest.approx(20 * 0.054)
    assert SchedulerStats().evaluation_seconds == SchedulerStats().seconds_until_end == 0


def test_nobody_waits_for_prompts_where_nobody_runs() -> None:
    work = SchedulerStats(most_rows=512, costs=StepCosts(0.1, StepTimes(row=0.01)))
    assert work.rows(0, 5) == 512
    assert work.rows(1, 1) == FIRST_ROWS
