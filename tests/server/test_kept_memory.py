"""Kept streams hold only their events, within one limit for all."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import tracemalloc
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest
from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from tests.server.asgi import Asked
from tests.server.conftest import LIMIT, MakeApp, socket_server, wait_for
from trinity.server import kept as kept_module
from trinity.server.errors import OPENAI, ApiError
from trinity.server.kept import KeptStreams
from trinity.server.kept_stream import STEP, Kept
from trinity.server.stream import Stream
from trinity.server.transport.connection import Connection

CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector: dropped objects must be freed at once."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Written(Stream):
    """A stream of ``count`` bytes, which ends on command."""

    def __init__(self, count: int) -> None:
        super().__init__(lambda: None, lambda answers: None, family=OPENAI)  # type: ignore[arg-type,return-value]
        self._count = count
        self.may_end = asyncio.Event()
        self.written = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(self._count // STEP):
            await send({"type": "http.response.body", "body": b"x" * STEP, "more_body": True})
        self.written.set()
        await self.may_end.wait()


async def read(message: Message) -> None:
    """Run a client that reads everything."""


async def kept(streams: KeptStreams, name: str, count: int, nbytes: int = 0) -> Written:
    """Return a stream that has written so many bytes, for a request of so many."""
    stream = Written(count)
    app = streams.answer(name, stream, request_bytes=nbytes)
    asking = asyncio.ensure_future(app({}, None, read))  # type: ignore[arg-type]
    done, _ = await asyncio.wait(
        {asking, asyncio.ensure_future(stream.written.wait())}, return_when="FIRST_COMPLETED"
    )
    for one in done:
        one.result()
    asking.cancel()
    await asyncio.wait({asking})
    return stream


async def ended(streams: KeptStreams, name: str, stream: Written) -> None:
    stream.may_end.set()
    await asyncio.wait({streams.find(name).task})
    await asyncio.sleep(0)


def test_a_dropped_stream_is_gone_at_once() -> None:
    async def test() -> None:
        streams = KeptStreams()
        for name in ("running", "whole", "replaced", "abandoned"):
            stream = await kept(streams, name, STEP, 1000)
            found = weakref.ref(streams.find(name))
            source = weakref.ref(stream)
            if name == "whole":
                await ended(streams, name, stream)
            del stream
            if name == "replaced":
                await kept(streams, name, STEP)
            elif name == "abandoned":
                streams._abandon(streams.find(name))
            else:
                streams.drop(name)
            for _ in range(3):
                await asyncio.sleep(0)
            assert found() is None, name
            assert source() is None, name
        streams.close()

    asyncio.run(test())


def test_a_whole_stream_holds_its_events_alone() -> None:
    async def test() -> None:
        streams = KeptStreams()
        stream = await kept(streams, "a", 3 * STEP, 5000)
        assert streams.nbytes == 3 * STEP + 5000
        await ended(streams, "a", stream)
        gone = weakref.ref(stream)
        del stream
        assert gone() is None
        assert streams.nbytes == 3 * STEP
        streams.close()

    asyncio.run(test())


def test_all_streams_have_so_many_bytes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MOST_BYTES", 10 * STEP)

    async def test() -> None:
        streams = KeptStreams()
        for name in "abc":
            await ended(streams, name, await kept(streams, name, 4 * STEP))
        assert [one for one, _ in streams.like("abc")] == ["b", "c"]  # the oldest made room
        running = await kept(streams, "d", 4 * STEP, 3 * STEP)
        assert [one for one, _ in streams.like("abcd")] == ["d"]
        with pytest.raises(ApiError) as refused:
            await kept(streams, "e", STEP, 4 * STEP)
        assert refused.value.status == 429
        # What grows beyond that loses its beginning.
        await kept(streams, "e", 8 * STEP)
        assert streams.find("e").start == 5 * STEP
        assert streams.nbytes == 10 * STEP
        await ended(streams, "d", running)
        assert streams.nbytes == 7 * STEP
        streams.drop("e")
        await kept(streams, "f", 0, 100 * STEP)  # one alone is not refused
        assert [one for one, _ in streams.like("abcdef")] == ["f"]
        streams.close()

    asyncio.run(test())


def test_reading_again_and_again_leaves_one_timer() -> None:
    async def test() -> None:
        loop, streams = asyncio.get_running_loop(), KeptStreams()
        await kept(streams, "a", STEP)

        def timers() -> int:
            return sum(not one.cancelled() for one in loop._scheduled)  # type: ignore[attr-defined]

        before = timers()
        for _ in range(20):
            reading = asyncio.ensure_future(streams.find("a").read(0, read))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait({reading})
        assert timers() == before
        streams.close()
        assert timers() == before - 1

    asyncio.run(test())


def streams_there() -> int:
    return sum(isinstance(one, Kept) for one in gc.get_objects())


@pytest.mark.full
@pytest.mark.parametrize("refused", [False, True])
def test_conversations_with_large_bodies_leave_nothing(make: MakeApp, refused: bool) -> None:
    app: Starlette = make()
    size, count = 1_000_000, 30

    async def ask(number: int) -> None:
        body = {
            "messages": [{"role": "user", "content": "x" * (size if refused else 1)}],
            "max_tokens": 2,
            "stream": True,
            "user": "u" * size,
        }
        headers = [("x-conversation-id", f"conversation {number}")]
        async with asyncio.timeout(LIMIT):
            content = json.dumps(body).encode()
            answer = await Asked(app, CHAT, content=content, headers=headers).whole()
            assert answer.status == (400 if refused else 200)

    async def test() -> None:
        async with app.router.lifespan_context(app):
            for number in range(3):
                await ask(number)
            there = streams_there()
            tracemalloc.start()
            try:
                before, _ = tracemalloc.get_traced_memory()
                for number in range(3, 3 + count):
                    await ask(number)
                for _ in range(3):
                    await asyncio.sleep(0)
                after, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert streams_there() - there == (0 if refused else count)
            assert after - before < 3 * size

    asyncio.run(test())


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
ASKED = b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "stream": true}'
LENGTH = b"Content-Length: %d\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"nothing that is HTTP\r\n\r\n",
        HEAD + LENGTH % len(ASKED) + ASKED,
        HEAD + LENGTH % (1 << 20) + ASKED,
        HEAD + LENGTH % (9 << 20) + b"x" * (1 << 20),
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000,
    ],
    ids=["whole", "malformed", "stream", "half a body", "too long", "chunks of a byte"],
)
@pytest.mark.parametrize("reads", [True, False])
def test_a_closed_connection_is_gone_at_once(
    make: MakeApp, monkeypatch: pytest.MonkeyPatch, sent: bytes, reads: bool
) -> None:
    seen = []  # a weak reference to each connection that has received bytes
    received = Connection.data_received

    def noted(self: Connection, data: bytes) -> None:
        if weakref.ref(self) not in seen:
            seen.append(weakref.ref(self))
        received(self, data)

    monkeypatch.setattr(Connection, "data_received", noted)

    def connect(port: int, count: int) -> None:
        """Connect, as the connection of this number, and disconnect."""
        with (
            socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as client,
            suppress(OSError),
        ):
            client.sendall(sent)
            wait_for(lambda: len(seen) == count)
            if reads:
                client.shutdown(socket.SHUT_WR)
                while client.recv(1 << 16):
                    pass

    with socket_server(make()) as url:
        for number in range(3):
            connect(int(url.rsplit(":", 1)[1]), number + 1)
        wait_for(lambda: not any(one() for one in seen))
