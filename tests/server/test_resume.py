"""Streams that a client resumes after its last event."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from tests.server.asgi import Asked
from tests.server.conftest import LIMIT, MakeApp, is_idle
from trinity.model import Model
from trinity.server import kept as kept_module

CHAT = "/v1/chat/completions"
HEADER = ("x-conversation-id", "a talk")
QUERY = "conv_id=a%20talk"
USER = [{"role": "user", "content": "Hello"}]
UMLAUT = "f\u00fcr"
BODY = {"messages": USER, "stream": True, "max_tokens": 30, "seed": 3, "ignore_eos": True}
# What depends on the time that an answer took.
TIMES = re.compile(rb'"(timings|usage)": ?\{.*?\}+(?=[,}])|"cpu_seconds": ?[\d.e-]+')


def blocks(stream: bytes) -> list[bytes]:
    """Return a stream's events without times."""
    found = [one for one in stream.split(b"\n\n") if one and not one.startswith(b":")]
    numbers = [int(one.split(b"\n")[0].removeprefix(b"id: ")) for one in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return [TIMES.sub(b"", one) for one in found]


async def resumed(app: Any, last: int | str, *, post: Any = None) -> Asked:
    last_id = ("last-event-id", str(last))
    if post is None:
        return await Asked(app, "/v1/stream", method="GET", query=QUERY, headers=[last_id]).whole()
    return await Asked(app, CHAT, post, headers=[HEADER, last_id]).whole()


def test_the_rest_comes_behind_the_last_event(make: MakeApp) -> None:
    app = make()

    async def run() -> None:
        first = Asked(app, CHAT, BODY, headers=[HEADER])
        await first.until(2)
        first.leave.set()
        await first.done
        had = 1  # as if it had read no more; all may have come at once
        rest = await resumed(app, had)
        whole = await resumed(app, 0)
        assert blocks(whole.bytes)[:had] == blocks(first.bytes)[:had]
        assert blocks(whole.bytes)[had:] == blocks(rest.bytes)
        assert whole.bytes.endswith(rest.bytes)
        assert (await resumed(app, had, post=BODY)).bytes == rest.bytes
        count = len(blocks(whole.bytes))
        assert (await resumed(app, count - 1)).bytes == b"id: %d\ndata: [DONE]\n\n" % count
        assert (await resumed(app, count)).status == 204
        for wrong in (count + 1, "x", "-1", "9" * 30):
            found = await resumed(app, wrong)
            assert (found.status, found.json["error"]["param"]) == (400, "last-event-id")

    asyncio.run(run())


def test_what_nobody_resumes_ends(
    make: MakeApp, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_module, "KEPT_SECONDS", 0.05)
    app = make()

    async def run() -> None:
        body = {**BODY, "max_tokens": 400}
        first = Asked(app, CHAT, body, headers=[HEADER])
        await first.until(3)
        first.leave.set()
        await first.done
        async with asyncio.timeout(60):
            while not is_idle(model):
                await asyncio.sleep(0.01)
        assert (await resumed(app, 1)).status == 404

    asyncio.run(run())


def test_another_apis_stream_is_not_resumed(make: MakeApp) -> None:
    async def run() -> None:
        app = make()
        await Asked(app, CHAT, BODY, headers=[HEADER]).whole()
        body = {"model": "demo", "messages": USER, "stream": True, "max_tokens": 3}
        headers = [HEADER, ("last-event-id", "2")]
        answer = await Asked(app, "/v1/messages", body, headers=headers).whole()
        assert answer.status == 409
        assert CHAT in answer.json["error"]["message"]

    asyncio.run(run())


def test_a_number_that_never_comes_is_told_at_the_end(make: MakeApp) -> None:
    async def run() -> None:
        app = make()
        first = Asked(app, CHAT, {**BODY, "max_tokens": 200}, headers=[HEADER])
        await first.until(2)
        late = await asyncio.wait_for(resumed(app, 10**9), LIMIT)
        assert late.status == 200
        assert late.events[-1]["error"]["param"] == "last-event-id"
        await first.done

    asyncio.run(run())


@pytest.mark.parametrize("sent", [UMLAUT, UMLAUT.encode().decode("latin-1")])
def test_names_beyond_ascii_are_those_of_queries(make: MakeApp, sent: str) -> None:
    async def run() -> None:
        app = make()

        async def named(scope: Any, receive: Any, send: Any) -> None:
            header = (HEADER[0].encode(), sent.encode("latin-1"))
            await app({**scope, "headers": [*scope["headers"], header]}, receive, send)

        await Asked(named, CHAT, BODY).whole()
        last = [("last-event-id", "0")]
        query = "conv_id=f%C3%BCr"
        again = await Asked(app, "/v1/stream", method="GET", query=query, headers=last).whole()
        assert again.status == 200

    asyncio.run(run())
