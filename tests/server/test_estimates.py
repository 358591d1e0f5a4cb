"""Estimates of waiting times, and refusals when the queue is full."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import Asked
from tests.server.conftest import MakeApp
from trinity.runtime.generation import Timings
from trinity.runtime.scheduling.scheduler_stats import SchedulerStats
from trinity.server.served import LONGEST, Estimates

PATH = "/v1/completions"


@pytest.fixture
def estimates() -> Estimates:
    """Estimates after requests of 2 seconds, of which the prompt took half a second."""
    found = Estimates()
    for prompt, completion in ((0.25, 1.75), (0.75, 1.25)):
        found.ended(Timings(prompt_seconds=prompt, completion_seconds=completion))
    return found


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (SchedulerStats(waiting=1), 0.5),
        (SchedulerStats(waiting=3, running=1), 1.5),
        (SchedulerStats(waiting=1, running=4, prompting=2), 1.5),
        (SchedulerStats(waiting=2, running=3, most_running=4), 0.5 + 2 / 3),
        (SchedulerStats(waiting=6, running=4, most_running=4), 0.5 + 6 * 2 / 4),
    ],
)
def test_first_token_follows_prompts_ahead_and_places(
    estimates: Estimates, work: SchedulerStats, seconds: float
) -> None:
    assert estimates.first_token(work) == pytest.approx(seconds)


def test_nothing_is_estimated_before_a_request_has_ended() -> None:
    assert Estimates().first_token(SchedulerStats(waiting=1)) is None
    assert Estimates().retry_after(500, SchedulerStats(running=2)) == 1


def test_retry_after_is_half_of_the_queue(estimates: Estimates) -> None:
    assert estimates.retry_after(16, SchedulerStats(running=4)) == 4
    assert estimates.retry_after(1, SchedulerStats(running=4)) == 1
    assert estimates.retry_after(100_000, SchedulerStats(running=1)) == LONGEST


def test_means_follow_the_newest_requests(estimates: Estimates) -> None:
    for _ in range(100):
        estimates.ended(Timings(prompt_seconds=4.0))
    assert estimates.first_token(SchedulerStats(waiting=1)) == pytest.approx(4.0, rel=0.01)


def test_a_stream_has_the_estimate_in_its_head(client: TestClient) -> None:
    body = {"prompt": "Prince Andrew " * 60, "max_tokens": 3, "stream": True}
    for _ in range(2):
        found = client.post(PATH, json=body)
    assert 0 <= int(found.headers["x-predicted-first-token-ms"]) < 10_000


@pytest.mark.full
def test_a_full_queue_refuses_and_says_when_to_ask_again(make: MakeApp) -> None:
    app = make(max_queue=1)

    async def obeying(number: int) -> list[int]:
        body = {"prompt": f"{number} The Emperor", "max_tokens": 40, "ignore_eos": True}
        statuses: list[int] = []
        while not statuses or statuses[-1] == 429:
            answer: Any = await Asked(app, PATH, body).whole()
            statuses.append(answer.status)
            if answer.status == 429:
                await asyncio.sleep(int(dict(answer.sent[0]["headers"])[b"retry-after"]))
        return statuses

    async def run() -> None:
        found = await asyncio.gather(*map(obeying, range(5)))
        assert any(statuses[0] == 429 for statuses in found)
        assert all(statuses[-1] == 200 for statuses in found)

    asyncio.run(run())
