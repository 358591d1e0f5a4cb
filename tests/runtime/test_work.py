"""What a scheduler tells of its work."""

from __future__ import annotations

import pytest

from trinity.runtime.work import Work


def test_times_are_those_of_the_prompts_first_and_of_the_soonest_end() -> None:
    work = Work(
        waiting=3, running=2, pending_tokens=100, next_tokens=50, soonest_end=20,
        step_seconds=0.05, row_seconds=0.01,
    )  # fmt: skip
    assert work.evaluation_seconds == pytest.approx(150 * 0.01)
    assert work.seconds_until_end == pytest.approx(20 * 0.05)
    assert Work().evaluation_seconds == Work().seconds_until_end == 0
