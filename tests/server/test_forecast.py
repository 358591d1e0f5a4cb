"""What the server tells of answers before they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from trinity.runtime.page import COMMON, Domain
from trinity.runtime.step_costs import StepCosts
from trinity.runtime.step_times import StepTimes, pairs
from trinity.runtime.work import Work
from trinity.server import forecast as forecast_module
from trinity.server.forecast import STEP, Forecast, Prompt, until_first_token

PATH = "/v1/completions"


def work_of(target: float = 0.0, **times: float) -> Work:
    return Work(known=True, most_rows=512, costs=StepCosts(target, StepTimes(**times), most=10_000))


ROWS = work_of(row=0.01)


def test_prompts_cost_their_rows_and_steps() -> None:
    work = work_of(step=0.05, prompts=0.02, row=0.01, pair=0.001)
    assert until(work, [(0, 20)]) == pytest.approx(20 * 0.01 + 0.07 + 200 * 0.001)
    assert until(work, [(0, 600)]) == pytest.approx(600 * 0.01 + 2 * 0.07 + 180_000 * 0.001)
    assert until(work, [(0, 300), (0, 200)]) == pytest.approx(5 + 0.07 + 65_000 * 0.001)
    stepping = replace(work, step_left=0.03, step_rows=12)
    assert until(stepping, [(0, 20)]) == pytest.approx(0.03 + 8 * 0.01 + 0.07 + 128 * 0.001)
    assert until(stepping, [(0, 10)]) == pytest.approx(0.03)


def test_steps_beside_running_answers_are_short_until_these_end() -> None:
    work = work_of(0.1, step=0.04, running=0.01, row=0.01)
    work = replace(work, running=2)
    assert work.rows(2, 1) == 6
    assert work.rows(1, 2) == 13
    found = until(work, [(0, 60)], left=[3, 5])  # 3 steps of 6 rows, 2 of 13, then the other 16
    assert found == pytest.approx(60 * 0.01 + 3 * 0.06 + 2 * 0.05 + 0.04)


def test_answers_to_those_ahead_run_beside() -> None:
    work = work_of(0.1, step=0.04, running=0.01, row=0.01)
    alone = until(work, [(0, 512)])
    assert until(work, [(0, 10), (10, 512)]) == pytest.approx(alone)  # in one step
    both = until(work, [(0, 512), (0, 40)], answer=2)
    assert both == pytest.approx(alone + 13 * 0.02 + 14 * 0.01 + 3 * 0.04 + 2 * 0.01)


def test_answers_to_those_in_the_step_under_way_run_beside() -> None:
    work = work_of(0.1, step=0.04, running=0.01, row=0.01)
    stepping = replace(work, step_left=0.5, step_rows=512)
    found = until(stepping, [(0, 512), (0, 40)], answer=2)
    assert found == pytest.approx(0.5 + 14 * 0.01 + 2 * 0.05 + 12 * 0.01 + 14 * 0.01 + 0.04)


def test_who_finds_no_place_waits_for_an_end() -> None:
    work = replace(work_of(step=0.04, running=0.01, row=0.01), running=2, most_running=2)
    assert until(work, [(0, 10)], left=[7, 90]) < 0.1 + 7 * 0.06 + 2 * 0.05 + 0.01
    assert until(work, [(0, 10)], left=[7, 90]) > 0.1 + 7 * 0.06


def test_long_waits_are_reckoned_in_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, real = 0, forecast_module.take

    def counted(queue: list[Prompt], rows: int) -> Any:
        nonlocal turns
        turns += 1
        return real(queue, rows)

    monkeypatch.setattr(forecast_module, "take", counted)
    work = replace(work_of(0.1, step=1.0, row=0.1), running=50)
    prompts = [(0, 100_000)] * 50
    assert until(work, prompts, left=[4000 + i for i in range(50)], answer=1000) > 500_000
    assert turns < 400


def until(
    work: Work, prompts: list[tuple[int, int]], left: Sequence[int] = (), answer: int = 10
) -> float:
    return until_first_token(work, [Prompt(*one, answer) for one in prompts], left)


def test_answers_that_stop_by_themselves_are_expected_to_do_so() -> None:
    forecast = Forecast()
    assert forecast.tokens_of(500) == 500
    for _ in range(300):
        forecast.ended(20, stopped=True)
    assert forecast.tokens_of(500) == pytest.approx(20, rel=0.01)
    assert forecast.tokens_of(5) == pytest.approx(4.5, abs=0.1)
    for _ in range(300):
        forecast.ended(20, stopped=False)
    assert forecast.tokens_of(500) > 400
    for _ in range(300):
        forecast.ended(1, stopped=True)
    assert forecast.tokens_of(500) == pytest.approx(1, rel=0.1)


def test_what_is_cached_is_looked_at_all_the_same() -> None:
    work, forecast = work_of(pair=1e-4), Forecast()
    first, second = answer(200, length=150), answer(100)
    found = forecast.first_token(model_of(work), [first])
    assert found == pytest.approx(1e-4 * pairs(150, 200))
    found = forecast.first_token(model_of(work, 40), [second])
    assert found == pytest.approx(1e-4 * (pairs(150, 200) + pairs(40, 100)))


_made: list[list[int]] = []


def answer(tokens: int, *, length: int | None = None, done: int = 0) -> Any:
    cache = None if length is None else SimpleNamespace(length=length)
    timings = SimpleNamespace(completion_tokens=done)
    own = [len(_made), *range(1, tokens)]
    _made.append(own)
    return SimpleNamespace(tokens=own, cache=cache, ended=False, timings=timings, shares=True,
                           adapters=(), domain=COMMON, most_left=10)  # fmt: skip


def model_of(work: Work, cached: int = 0) -> Any:
    return SimpleNamespace(cached_tokens=lambda one: cached, load_of_work=lambda: work)


def test_those_ahead_are_counted_until_they_have_a_token() -> None:
    work, forecast = ROWS, Forecast()
    first, second = answer(100), answer(50)
    assert forecast.first_token(model_of(work), [first]) == pytest.approx(1.0)
    assert forecast.first_token(model_of(work, 30), [second]) == pytest.approx(1.2)
    first.cache = SimpleNamespace(length=90)
    assert forecast.first_token(model_of(work), [answer(10)]) == pytest.approx(0.4)
    second.ended, first.timings.completion_tokens = True, 1
    assert forecast.first_token(model_of(work), [answer(5)]) == pytest.approx(0.15)
    assert forecast.first_token(model_of(Work()), [answer(5)]) is None


def test_what_another_evaluates_is_not_counted_twice() -> None:
    work, forecast = ROWS, Forecast()
    first, second = answer(100), answer(100)
    second.tokens = [*first.tokens[:60], *range(500, 540)]
    assert forecast.first_token(model_of(work), [first]) == pytest.approx(1.0)
    assert forecast.first_token(model_of(work), [second]) == pytest.approx(1.4)


def test_what_one_evaluates_in_another_domain_is_no_help() -> None:
    work, forecast = ROWS, Forecast()
    first, second = answer(100), answer(100)
    second.tokens, second.domain = first.tokens, Domain(None, "a")
    assert forecast.first_token(model_of(work), [first]) == pytest.approx(1.0)
    assert forecast.first_token(model_of(work), [second]) == pytest.approx(2.0)


def test_what_came_corrects_what_is_predicted() -> None:
    work, forecast = ROWS, Forecast()
    for _ in range(200):
        predicted = forecast.first_token(model_of(work), [one := answer(10)])
        assert predicted is not None
        one.ended = True
        forecast.came(predicted, 0.25)
    assert predicted == pytest.approx(0.25, rel=0.03)
    predicted = forecast.first_token(model_of(work), [last := answer(10)])
    assert predicted is not None
    last.ended = True
    forecast.came(0.1, 1e9)  # a pause of the process
    raised = forecast.first_token(model_of(work), [answer(10)])
    assert raised == pytest.approx(predicted * (1 + STEP), rel=0.001)


def test_a_stream_has_the_prediction_in_its_head(client: TestClient) -> None:
    body = {"prompt": "Prince Andrew " * 60, "max_tokens": 3, "cache_prompt": False, "stream": True}
    for _ in range(3):
        found = client.post(PATH, json=body)
    milliseconds = int(found.headers["x-predicted-first-token-ms"])
    assert 0 <= milliseconds < 10000
