"""What the server tells of answers before they come."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from trinity.runtime.prompt_times import PromptTimes, pairs
from trinity.runtime.work import Work
from trinity.server.forecast import STEP, Forecast, evaluation

PATH = "/v1/completions"
ROWS = Work(prompt_times=PromptTimes(row=0.01))


def test_prompts_cost_their_rows_and_the_steps_of_those_that_run() -> None:
    work = replace(ROWS, running=3, prompting=1, step_seconds=0.05, prompt_rows=8)
    assert evaluation(work, 20, 0) == pytest.approx(20 * 0.01 + 3 * 0.05)
    alone = replace(ROWS, running=1, prompting=1, step_seconds=0.05, prompt_rows=512)
    assert evaluation(alone, 20, 0) == pytest.approx(20 * 0.01)
    assert evaluation(alone, 1, 0) == pytest.approx(0.05)
    stepping = replace(work, step_left=0.03, step_rows=12)
    assert evaluation(stepping, 20, 0) == pytest.approx(0.03 + 8 * 0.01 + 0.05)


def test_steps_with_prompts_and_the_places_they_look_at_cost_something() -> None:
    times = PromptTimes(step=0.2, row=0.01, pair=0.001)
    work = replace(ROWS, running=3, step_seconds=0.05, prompt_rows=8, prompt_times=times)
    assert evaluation(work, 20, 500) == pytest.approx(20 * 0.01 + 3 * 0.25 + 500 * 0.001)
    stepping = replace(work, step_rows=12, step_pairs=400)
    assert evaluation(stepping, 20, 500) == pytest.approx(8 * 0.01 + 0.25 + 100 * 0.001)


def test_what_is_cached_is_looked_at_all_the_same() -> None:
    work, forecast = replace(ROWS, prompt_times=PromptTimes(pair=1e-4), prompt_rows=512), Forecast()
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
                           adapters=())  # fmt: skip


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
