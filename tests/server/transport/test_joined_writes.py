"""Writes of one turn of the event loop are joined into one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable

import pytest
from starlette.applications import Starlette
from starlette.types import Message

from tests.server.asgi import Asked
from trinity.server.stream import DEADLINE, MORE, MOST_MORE, Stream
from trinity.server.transport.joined_writes import MOST_WAITING, JoinedWrites


class Transport(asyncio.Transport):
    """Records what is written and done."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[object] = []

    def write(self, data: object) -> None:
        self.done.append(data)

    def get_write_buffer_size(self) -> int:
        return 7

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")


def joined(act: Callable[[JoinedWrites], None], turns: int = 1) -> list[object]:
    """What is done to the transport by ``act`` and in so many turns of the loop."""
    transport = Transport()

    async def test() -> list[object]:
        act(JoinedWrites(transport))
        for _ in range(turns):
            await asyncio.sleep(0)
        return [*transport.done]

    return asyncio.run(test())


def write(*pieces: bytes) -> Callable[[JoinedWrites], None]:
    def act(joined: JoinedWrites) -> None:
        for piece in pieces:
            joined.write(piece)

    return act


def test_writes_of_a_turn_are_one_write_in_the_next() -> None:
    assert joined(write(b"a", b"", b"b"), turns=0) == []
    assert joined(write(b"a", b"", b"b")) == [b"ab"]
    assert joined(write(b"a")) == [b"a"]


def test_many_bytes_are_written_at_once() -> None:
    large = b"x" * MOST_WAITING
    assert joined(write(b"a", large, b"b"), turns=0) == [b"a" + large]


def test_closing_writes_what_waits_and_aborting_drops_it() -> None:
    def close(joined: JoinedWrites) -> None:
        joined.write(b"a")
        joined.write(b"b")
        joined.close()

    def abort(joined: JoinedWrites) -> None:
        joined.write(b"a")
        joined.abort()

    assert joined(close) == [b"ab", "close"]
    assert joined(abort) == ["abort"]


def test_waiting_bytes_count_as_unread() -> None:
    def check(joined: JoinedWrites) -> None:
        joined.write(b"abc")
        assert joined.get_write_buffer_size() == 10
        joined.flush()
        assert joined.get_write_buffer_size() == 7

    assert joined(check) == [b"abc"]


class Events:
    """A response whose events are all here."""

    predicted = None

    def __init__(self, count: int) -> None:
        self.left = count

    @property
    def has_next(self) -> bool:
        return self.left > 0

    def close(self) -> None:
        pass


async def events(answers: Events) -> AsyncGenerator[bytes]:
    while answers.left:
        answers.left -= 1
        yield b"data: x\n\n"


@pytest.mark.parametrize(("count", "alone"), [(1, [0]), (3, [2]), (100, [MOST_MORE, 99])])
def test_an_event_that_others_follow_is_marked(count: int, alone: list[int]) -> None:
    sent: list[Message] = []

    async def start() -> Events:
        return Events(count)

    async def send(message: Message) -> None:
        sent.append(message)

    async def test() -> None:
        scope = {DEADLINE: asyncio.get_running_loop().time() + 60}
        await Stream(start, events)(scope, None, send)  # type: ignore[arg-type]

    asyncio.run(test())
    bodies = sent[1:-1]
    assert len(bodies) == count
    assert [i for i, message in enumerate(bodies) if MORE not in message] == alone
    assert MORE not in sent[-1]


def test_an_empty_event_sends_those_that_wait() -> None:
    sent: list[Message] = []

    async def start() -> Events:
        return Events(9)

    async def written(answers: Events) -> AsyncGenerator[bytes]:
        for piece in (b"text", b"", b"last"):
            yield piece

    async def send(message: Message) -> None:
        sent.append(message)

    async def test() -> None:
        scope = {DEADLINE: asyncio.get_running_loop().time() + 60}
        await Stream(start, written)(scope, None, send)  # type: ignore[arg-type]

    asyncio.run(test())
    assert [(message["body"], MORE in message) for message in sent[1:4]] == [
        (b"text", True),
        (b"", False),
        (b"last", True),
    ]


def test_streams_of_several_choices_have_every_event(app: Starlette) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "n": 8, "max_tokens": 5,
            "ignore_eos": True}  # fmt: skip

    async def test() -> Asked:
        return await Asked(app, "/v1/chat/completions", content=json.dumps(body).encode()).whole()

    *all_events, done = asyncio.run(test()).events
    assert done == "[DONE]"
    ended = [
        choice["index"]
        for event in all_events
        for choice in event["choices"]
        if choice["finish_reason"]
    ]
    assert sorted(ended) == list(range(8))
