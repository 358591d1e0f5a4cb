"""Places kept for requests that were refused."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.server.asgi import Asked
from tests.server.conftest import MakeApp
from trinity.runtime.work import Work
from trinity.server import places
from trinity.server.places import FIRST_MARGIN, GRACE, MOST_OF_ONE, MOST_PLACES, Places

PATH = "/v1/completions"


class Clock:
    """The time, which only the test moves."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        patch.setattr(places.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def kept(between: float) -> Places:
    """Places of a queue that one leaves every so many seconds."""
    found = Places()
    found._between, found._ends = between, 100
    return found


def test_each_who_is_refused_gets_the_next_place(clock: Clock) -> None:
    queue, full = kept(2.0), Work(waiting=4, running=2)
    waits = [queue.enter(b"%d" % i, 1, full, 4, 4) for i in range(4)]
    assert waits == [FIRST_MARGIN * 2 * (i + 1) for i in range(4)]


def test_the_place_is_not_given_to_who_comes_between(clock: Clock) -> None:
    queue, work = kept(2.0), Work(running=2)
    assert queue.enter(b"refused", 1, work, 2, 2) == 3
    clock.now += 2.99
    assert queue.enter(b"new", 1, work, 1, 2) > 0  # the one place there is would be taken
    assert queue.enter(b"another", 1, work, 0, 2) == 0  # there are two
    clock.now += 0.01
    assert queue.enter(b"refused", 1, work, 1, 2) == 0


def test_a_queue_that_empties_in_time_takes_who_comes_between(clock: Clock) -> None:
    queue, work = kept(0.1), Work(running=2)
    assert queue.enter(b"refused", 1, work, 2, 2) == 1
    assert queue.enter(b"new", 1, work, 1, 2) == 0


def test_who_never_comes_back_keeps_nobody_out_for_long(clock: Clock) -> None:
    queue, work = kept(2.0), Work(running=2)
    wait = queue.enter(b"refused", 1, work, 1, 1)
    clock.now += wait
    assert queue.enter(b"new", 1, work, 0, 1) > 0
    assert queue.enter(b"while nothing runs", 1, Work(), 0, 1) == 0
    clock.now += 3600
    assert queue.enter(b"late", 1, work, 0, 1) == 0
    assert queue._kept == []


def test_who_is_a_little_late_has_the_place(clock: Clock) -> None:
    queue, work = kept(2.0), Work(running=2)
    clock.now += queue.enter(b"refused", 1, work, 1, 1) + GRACE
    assert queue.enter(b"new", 1, work, 0, 1) > 0
    assert queue.enter(b"refused", 1, work, 0, 1) == 0


def test_what_is_kept_is_bounded(clock: Clock) -> None:
    queue, work = kept(0.5), Work(running=2)
    for _ in range(2 * MOST_OF_ONE):
        queue.enter(b"the same", 1, work, 4, 4)
    assert len(queue._kept) == MOST_OF_ONE
    waits = [queue.enter(b"%d" % i, 1, work, 4, 4) for i in range(2 * MOST_PLACES)]
    assert len(queue._kept) == MOST_PLACES
    assert max(waits) <= 3600


def test_the_margin_follows_how_retries_fare(clock: Clock) -> None:
    queue, work = kept(1.0), Work(running=2)
    for found in (False, True):
        before = queue._margin
        clock.now += queue.enter(b"x", 1, work, 4, 4)
        queue.enter(b"x", 1, work, 3 if found else 4, 4)
        assert (queue._margin < before) == found
        queue._kept.clear()


@pytest.mark.parametrize("clients", [8, 32])
@pytest.mark.parametrize("seconds", [0.05, 3.0])
def test_nearly_all_find_room_at_their_time(clock: Clock, clients: int, seconds: float) -> None:
    """Clients that obey, answers whose times are drawn, two at a time and four places."""
    chance, queue, most = random.Random(1), Places(), 4
    waiting, running, first, late = 0, list[float](), 0, 0
    ready: list[tuple[float, bytes, bool]] = [
        (1000.0 + i / 100, b"%d" % i, False) for i in range(clients)
    ]
    answered = 0
    while answered < 3000:
        clock.now = min([*running, min(ready)[0] if ready else 1e18])
        work = Work(waiting=waiting, running=len(running))
        if running and clock.now == min(running):
            running.remove(clock.now)
            answered += 1
            queue.ended(work)
            ready.append((clock.now, b"new %d" % answered, False))
        else:
            ready.remove(one := min(ready))
            wait = queue.enter(one[1], 1, work, waiting, most)
            if one[2]:
                first, late = first + 1, late + (wait > 0)
            if wait:
                ready.append((clock.now + wait, one[1], True))
            else:
                waiting += 1
        while waiting and len(running) < 2:
            waiting -= 1
            running.append(clock.now + chance.uniform(0.05, 1.95) * 2 * seconds)
    assert first > 100
    assert late / first < 0.05
    assert (clock.now - 1000.0) / answered < 1.05 * seconds  # the model does not wait for anybody


def test_a_retry_after_the_given_time_is_taken(make: MakeApp) -> None:
    app = make(max_queue=1)

    async def asked(beside: int) -> Asked:
        body = {"prompt": f"{beside} The Emperor", "max_tokens": 40, "ignore_eos": True}
        return await Asked(app, PATH, body).whole()

    async def obeying(beside: int) -> list[int]:
        statuses: list[int] = []
        while not statuses or statuses[-1] == 429:
            answer: Any = await asked(beside)
            statuses.append(answer.status)
            if answer.status == 429:
                await asyncio.sleep(int(dict(answer.sent[0]["headers"])[b"retry-after"]))
        return statuses

    async def run() -> None:
        found = [one for one in await asyncio.gather(*map(obeying, range(5))) if len(one) > 1]
        assert found
        assert all(statuses == [429, 200] for statuses in found)

    asyncio.run(run())
