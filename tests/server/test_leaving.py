"""Clients that disconnect, wait or send at the same time; keep-alives; the queue's limit."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.applications import Starlette

from tests.server.asgi import Asked, strict
from tests.server.conftest import LIMIT, MakeApp, is_idle
from trinity.model import Model
from trinity.runtime.sampling.logprobs import TokenLogprob
from trinity.server import stream
from trinity.server.endpoints.logprobs import chat_logprobs, finite

CHAT = "/v1/chat/completions"


def chat(text: str, **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "ignore_eos": True, "max_tokens": 24, **body}


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await test()

    asyncio.run(limited())


@contextmanager
def nobody_gets_on(model: Model) -> Iterator[None]:
    """Occupy the engine from another thread, so that every request waits."""
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with model.exclusive():
            begun.set()
            over.wait(LIMIT)

    thread = threading.Thread(target=hold)
    thread.start()
    assert begun.wait(LIMIT)
    try:
        yield
    finally:
        over.set()
        thread.join(LIMIT)


async def until_idle(model: Model) -> None:
    while not is_idle(model):
        await asyncio.sleep(0.002)


def content(asked: Asked) -> str:
    return str(asked.json["choices"][0]["message"]["content"])


@pytest.mark.parametrize("streams", [False, True])
def test_requirement_1_leaving_while_decoding_ends_the_sequence(
    app: Starlette, model: Model, streams: bool
) -> None:
    async def test() -> None:
        left = Asked(app, CHAT, chat("x", stream=streams, max_tokens=400))
        while model.scheduler_stats().running == 0:
            await asyncio.sleep(0.002)
        if streams:
            await left.until(6)
        left.leave.set()
        await left.done
        await until_idle(model)  # 400 tokens would take many steps more
        assert len(left.sent) < 300

    run(test)


def test_requirement_1_leaving_the_queue_ends_it_there(app: Starlette, model: Model) -> None:
    async def test() -> None:
        with nobody_gets_on(model):
            others = [Asked(app, CHAT, chat("x", stream=streams)) for streams in (False, True)]
            while model.scheduler_stats().waiting < 2:
                await asyncio.sleep(0.002)
            for one in others:
                one.leave.set()
                await one.done
            await until_idle(model)
        assert others[0].sent == []

    run(test)


@pytest.mark.few(1)
@pytest.mark.parametrize("rounds", [3, pytest.param(63, marks=pytest.mark.full)])
def test_requirement_1_neighbours_bytes_are_unchanged(
    app: Starlette, model: Model, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients leave at random moments; the others get the same bytes as alone.

    At most two steps later, one of which may have been running, nothing of theirs remains.
    """
    steps, step = 0, model.engine.step

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal steps
        steps += 1
        return step(*arguments, **options)

    async def none_left_but(count: int) -> None:
        end = steps + 2
        while True:
            seen, work = steps, model.scheduler_stats()
            if work.running + work.waiting <= count:
                break
            assert seen <= end
            await asyncio.sleep(0.0005)

    async def test() -> None:
        drawn = random.Random(5)
        body = chat("Tell of the Emperor", temperature=1.0, seed=11, max_tokens=48)
        expected = content(await Asked(app, CHAT, body).whole())
        for _ in range(rounds):
            stays = Asked(app, CHAT, body)
            leaving = []
            for number in range(8):
                text = f"{number} " * drawn.choice((1, 60))
                leaving.append(Asked(app, CHAT, chat(text, stream=number % 2 == 0, n=2)))
            drawn.shuffle(leaving)
            for one in leaving:
                await asyncio.sleep(drawn.random() * 0.02)
                one.leave.set()
            await asyncio.gather(*(one.done for one in leaving))
            await none_left_but(1)
            assert content(await stays.whole()) == expected
        await until_idle(model)

    monkeypatch.setattr(model.engine, "step", counted)
    run(test)


@pytest.mark.full
def test_requirement_16_many_clients_get_what_each_gets_alone(app: Starlette) -> None:
    async def test() -> None:
        bodies = [
            chat(f"{'Prince ' * (number % 7)}{number}", n=1 + number % 2, stream=number % 3 == 0,
                 max_tokens=8 + number % 5, temperature=number % 2, seed=number)
            for number in range(32)
        ]  # fmt: skip

        def said(asked: Asked) -> Any:
            if asked.sent[0]["headers"][0][1] == b"application/json":
                return [one["message"]["content"] for one in asked.json["choices"]]
            found: dict[int, str] = {}
            for event in asked.events[:-1]:
                for one in event["choices"]:
                    found.setdefault(one["index"], "")
                    found[one["index"]] += one["delta"].get("content") or ""
            return found

        alone = [said(await Asked(app, CHAT, body).whole()) for body in bodies]
        together = await asyncio.gather(*(Asked(app, CHAT, body).whole() for body in bodies))
        assert [said(one) for one in together] == alone

    run(test)


def test_requirement_17_a_seed_gives_one_answer_under_any_load(app: Starlette) -> None:
    async def test() -> None:
        body = chat("Natasha", temperature=1.2, seed=99)
        alone = content(await Asked(app, CHAT, body).whole())
        load = [Asked(app, CHAT, chat(f"load {number}")) for number in range(5)]
        under = [Asked(app, CHAT, body) for _ in range(3)]
        assert [content(await one.whole()) for one in under] == [alone] * 3
        for one in load:
            await one.done

    run(test)


def test_requirement_7_a_silent_stream_says_that_it_is_alive(
    app: Starlette, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stream.BEAT <= 15
    assert stream.PATIENCE <= 15
    monkeypatch.setattr(stream, "BEAT", 0.02)
    monkeypatch.setattr(stream, "PATIENCE", 0.02)

    async def test() -> None:
        with nobody_gets_on(model):  # nobody's prompt gets on
            waits = Asked(app, CHAT, chat("x", stream=True))
            await waits.until(5)
            assert waits.bytes.count(b": keep-alive\n\n") >= 2
        await waits.done
        assert waits.events[-1] == "[DONE]"

    run(test)


def test_requirement_3_health_does_not_wait_for_compute(app: Starlette, model: Model) -> None:
    async def test() -> None:
        with nobody_gets_on(model):
            waits = [Asked(app, CHAT, chat(f"{number} " * 150)) for number in range(4)]
            for _ in range(20):
                assert (await Asked(app, "/health", method="GET").whole()).status == 200
            assert not any(one.done.done() for one in waits)
            for one in waits:
                one.leave.set()
        await asyncio.gather(*(one.done for one in waits))
        await until_idle(model)

    run(test)


def test_a_full_queue_says_when_to_come_again(make: MakeApp, model: Model) -> None:
    app = make(max_queue=2)

    async def test() -> None:
        with nobody_gets_on(model):
            waits = [Asked(app, CHAT, chat(f"{number}")) for number in range(2)]
            while model.scheduler_stats().waiting < 2:
                await asyncio.sleep(0.002)
            refused = await Asked(app, CHAT, chat("third", stream=True)).whole()
            assert refused.status == 429
            headers = dict(refused.sent[0]["headers"])
            assert 1 <= int(headers[b"retry-after"]) <= 3600
            error = refused.json["error"]
            assert (error["code"], error["type"]) == ("queue_full", "rate_limit_error")
        for one in waits:
            assert (await one.whole()).status == 200
        assert (await Asked(app, CHAT, chat("again")).whole()).status == 200

    run(test)


def test_many_that_come_at_once_do_not_pass_the_limit(make: MakeApp, model: Model) -> None:
    app = make(max_queue=4)

    async def test() -> None:
        with nobody_gets_on(model):
            asked = [Asked(app, CHAT, chat(f"{number}")) for number in range(20)]
            while sum(one.done.done() for one in asked) < 16:
                await asyncio.sleep(0.002)
            assert model.scheduler_stats().waiting <= 4
        statuses = [(await one.whole()).status for one in asked]
        assert (statuses.count(200), statuses.count(429)) == (4, 16)

    run(test)


@pytest.mark.parametrize("streams", [False, True])
def test_a_request_that_takes_too_long_ends(
    make: MakeApp, model: Model, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make(request_seconds=0.3)
    monkeypatch.setattr(stream, "PATIENCE", 0.1)

    async def test() -> None:
        with nobody_gets_on(model):
            late = await Asked(app, CHAT, chat("x", stream=streams)).whole()
            await until_idle(model)
        if streams:
            assert late.events[-1]["error"]["type"] == "timeout_error"
        else:
            assert (late.status, late.json["error"]["type"]) == (504, "timeout_error")

    run(test)


def test_what_fails_in_a_stream_ends_it_with_an_error(
    app: Starlette, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        asked = Asked(app, CHAT, chat("x", stream=True, max_tokens=400))
        await asked.until(5)

        def broken(*arguments: Any, **options: Any) -> Any:
            raise RuntimeError("a step failed")

        with monkeypatch.context() as patch:
            patch.setattr(type(model.engine), "step", broken)
            await asked.done
        assert asked.events[-1]["error"]["type"] == "server_error"
        assert "a step failed" not in asked.bytes.decode()
        assert (await Asked(app, CHAT, chat("y")).whole()).status == 200

    run(test)


@pytest.mark.few(1)
@pytest.mark.parametrize("prompts", [20, pytest.param(200, marks=pytest.mark.full)])
def test_requirement_5_memory_is_flat_over_many_prompts(
    app: Starlette, model: Model, prompts: int
) -> None:
    async def test() -> None:
        pool = model.engine.pool
        sizes = []
        for number in range(prompts):
            body = chat(f"{number} distinct " * 40, max_tokens=1)
            assert (await Asked(app, CHAT, body).whole()).status == 200
            sizes.append(pool.nbytes)
        assert max(sizes) <= pool.limit

    run(test)


def test_requirement_15_infinite_logprobs_are_strict_json(model: Model) -> None:
    least = TokenLogprob(1, float("-inf"), "a", (TokenLogprob(2, float("-inf"), "b"),))
    (found,) = strict(stream.encode(chat_logprobs(model, [least])))
    assert found["logprob"] == found["top_logprobs"][0]["logprob"] == finite(-1e30) == -9999.0
