from __future__ import annotations

import random

import pytest

from trinity.runtime.scheduling.step_costs import ALIKE, StepFit, StepTimes, pairs

TIMES = [
    StepTimes(0.01, 0.002, 0.004, 4e-4, 6e-7),
    StepTimes(0.0, 0.0, 0.0, 4e-4, 6e-7),
    StepTimes(0.3, 0.0, 0.1, 0.02, 0),
]


def test_pairs_are_the_places_that_tokens_look_at() -> None:
    assert pairs(100, 300) == pytest.approx(sum(range(100, 300)), rel=0.01)
    assert pairs(0, 300) == pairs(0, 100) + pairs(100, 300)


def test_seconds_of_steps() -> None:
    times = StepTimes(0.01, 0.002, 0.1, 0.001, 1e-5)
    assert times.seconds(3) == pytest.approx(0.016)
    assert times.seconds(3, steps=5) == pytest.approx(0.08)
    assert times.seconds(3, 20, 100, 5) == pytest.approx(5 * 0.116 + 0.02 + 0.001)


def noted(fit: StepFit, times: StepTimes, steps: int, noise: float = 0.1) -> None:
    chance = random.Random(3)
    for _ in range(steps):
        running, start = chance.randrange(9), chance.randrange(2000)
        rows = chance.randrange(1, 300) if chance.random() < 0.7 or not running else 0
        places = pairs(start, start + rows)
        seconds = times.seconds(running, rows, places) * chance.uniform(1 - noise, 1 + noise)
        fit.note(running, rows, places, seconds)


@pytest.mark.parametrize("times", TIMES)
def test_it_finds_what_steps_and_rows_take(times: StepTimes) -> None:
    fit = StepFit()
    noted(fit, times, 150)
    for running, rows, start in ((0, 5, 0), (4, 100, 1500), (0, 512, 0), (1, 0, 0), (6, 0, 0)):
        places = pairs(start, start + rows)
        wanted = times.seconds(running, rows, places)
        assert fit.times.seconds(running, rows, places) == pytest.approx(wanted, rel=0.2, abs=0.003)


def test_hours_without_prompts_take_nothing_of_what_is_known_of_prompts() -> None:
    fit = StepFit()
    noted(fit, TIMES[0], 150, noise=0)
    before = fit.times
    for _ in range(100 * ALIKE):
        fit.note(1, 0, 0.0, TIMES[0].seconds(1))
    assert fit.times.row == pytest.approx(before.row, rel=0.05)
    assert fit.times.seconds(1) == pytest.approx(TIMES[0].seconds(1), rel=0.02)


def test_a_step_may_seem_to_take_no_time() -> None:
    fit = StepFit()
    for _ in range(13):
        fit.note(0, 8, pairs(0, 8), 0.0)
    assert 0 < fit.times.seconds(0, 8, pairs(0, 8)) < 1e-5


def test_no_time_is_below_zero() -> None:
    fit = StepFit()
    for rows, seconds in ((500, 0.1), (5, 0.2), (250, 0.15)) * 20:  # the more, the faster
        fit.note(0, rows, pairs(0, rows), seconds)
        times = fit.times
        assert min(times.step, times.running, times.prompts, times.row, times.pair) >= 0
    assert fit.times.seconds(0, 1) > 0.05


def test_it_follows_a_change_but_no_pause() -> None:
    fit, place = StepFit(), (2, 200, pairs(0, 200))
    noted(fit, TIMES[0], 60, 0.05)
    before = fit.times.seconds(*place)
    fit.note(*place, 100.0)
    assert fit.times.seconds(*place) < 1.5 * before
    slow = StepTimes(0.04, 0.008, 0.016, 16e-4, 24e-7)
    noted(fit, slow, 100, 0.05)
    assert fit.times.seconds(*place) == pytest.approx(4 * before, rel=0.2)
