from __future__ import annotations

import random

import pytest

from trinity.runtime.prompt_times import ENOUGH, PromptFit, PromptTimes, pairs


def test_pairs_are_the_places_that_tokens_look_at() -> None:
    assert pairs(100, 300) == pytest.approx(sum(range(100, 300)), rel=0.01)
    assert pairs(0, 300) == pairs(0, 100) + pairs(100, 300)


def noted(fit: PromptFit, step: float, row: float, pair: float, steps: int, noise: float) -> None:
    chance = random.Random(3)
    for _ in range(steps):
        rows, start = chance.randrange(1, 300), chance.randrange(2000)
        places = pairs(start, start + rows)
        seconds = PromptTimes(step, row, pair).seconds(1, rows, places)
        fit.note(rows, places, seconds * chance.uniform(1 - noise, 1 + noise))


@pytest.mark.parametrize(
    ("step", "row", "pair"), [(0.01, 4e-4, 6e-7), (0.0, 4e-4, 6e-7), (0.3, 0.02, 0)]
)
def test_it_finds_what_steps_rows_and_places_take(step: float, row: float, pair: float) -> None:
    fit = PromptFit()
    noted(fit, step, row, pair, 100, 0.1)
    for rows, start in ((5, 0), (100, 1500), (512, 0)):
        places = pairs(start, start + rows)
        wanted = PromptTimes(step, row, pair).seconds(1, rows, places)
        assert fit.times.seconds(1, rows, places) == pytest.approx(wanted, rel=0.15)


def test_a_step_may_seem_to_take_no_time() -> None:
    fit = PromptFit()
    for _ in range(ENOUGH // 8 + 1):
        assert not fit.times.known
        fit.note(8, pairs(0, 8), 0.0)
    assert 0 < fit.times.seconds(1, 8, pairs(0, 8)) < 1e-5


def test_no_time_is_below_zero() -> None:
    fit = PromptFit()
    for rows, seconds in ((500, 0.1), (5, 0.2), (250, 0.15)) * 20:  # the more, the faster
        fit.note(rows, pairs(0, rows), seconds)
        assert min(fit.times.step, fit.times.row, fit.times.pair) >= 0
    assert fit.times.step > 0.05


def test_it_follows_a_change_but_no_pause() -> None:
    fit = PromptFit()
    noted(fit, 0.01, 4e-4, 0.0, 60, 0.05)
    before = fit.times.seconds(1, 200, pairs(0, 200))
    fit.note(200, pairs(0, 200), 100.0)
    assert fit.times.seconds(1, 200, pairs(0, 200)) < 1.5 * before
    noted(fit, 0.04, 16e-4, 0.0, 100, 0.05)
    assert fit.times.seconds(1, 200, pairs(0, 200)) == pytest.approx(4 * before, rel=0.2)
