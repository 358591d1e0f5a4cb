"""Streams that continue without their client and are read again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.server.asgi import Asked, events, strict
from tests.server.conftest import MakeApp, is_idle
from trinity.model import Model
from trinity.server import kept as kept_module
from trinity.server.errors import ApiError
from trinity.server.kept import KeptStreams

CHAT = "/v1/chat/completions"
HEADERS = [("x-conversation-id", "talk::a/b:Q8_0")]
BODY = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, "temperature": 0,
        "max_tokens": 40}  # fmt: skip
LIMIT = 60.0


async def asked(app: Any, path: str, query: str = "", method: str = "GET") -> Asked:
    return await Asked(app, path, method=method, query=query).whole()


async def until_idle(model: Model) -> None:
    async with asyncio.timeout(LIMIT):
        while not is_idle(model):
            await asyncio.sleep(0.005)


def test_a_stream_is_read_again_and_from_any_place(make: MakeApp) -> None:
    app, name = make(), "conv_id=talk%3A%3Aa%2Fb%3AQ8_0"

    async def run() -> None:
        first = await Asked(app, CHAT, BODY, headers=HEADERS).whole()
        plain = await Asked(app, CHAT, BODY).whole()
        assert texts(first.bytes) == texts(plain.bytes)
        again = await asked(app, "/v1/stream", name)
        assert (again.status, again.bytes) == (200, first.bytes)
        later = await asked(app, "/v1/stream", f"{name}&from=100")
        assert later.bytes == first.bytes[100:]
        over = await asked(app, "/v1/stream", f"{name}&from={len(first.bytes) + 1}")
        assert (over.status, over.json["error"]["param"]) == (400, "from")
        known = {"conversation_ids": ["talk", "talk", "tal", "other"]}
        (found,) = (await Asked(app, "/v1/streams/lookup", known).whole()).json
        assert (found["conversation_id"], found["is_done"]) == ("talk::a/b:Q8_0", True)
        assert found["total_bytes"] == len(first.bytes)
        assert (await asked(app, "/v1/stream", name, "DELETE")).status == 204
        assert (await asked(app, "/v1/stream", name)).status == 404
        assert (await asked(app, "/v1/stream", name, "DELETE")).status == 204

    asyncio.run(run())


def texts(stream: bytes) -> str:
    found = [one for one in events(stream) if one != "[DONE]"]
    return "".join(one["choices"][0]["delta"].get("content") or "" for one in found)


def test_it_goes_on_when_its_client_leaves(make: MakeApp, model: Model) -> None:
    app = make()

    async def run() -> None:
        first = Asked(app, CHAT, BODY, headers=HEADERS)
        await first.until(2)
        first.leave.set()
        await first.done
        again = await asked(app, "/v1/stream", "conv_id=talk%3A%3Aa%2Fb%3AQ8_0")
        assert again.bytes.startswith(first.bytes)
        assert events(again.bytes)[-1] == "[DONE]"
        await until_idle(model)

    asyncio.run(run())


def test_a_stop_ends_it_and_its_readers(make: MakeApp, model: Model) -> None:
    app = make()

    async def run() -> None:
        first = Asked(app, CHAT, BODY | {"max_tokens": 400}, headers=HEADERS)
        await first.until(2)
        name = "conv_id=talk%3A%3Aa%2Fb%3AQ8_0"
        assert (await asked(app, "/v1/stream", name, "DELETE")).status == 204
        async with asyncio.timeout(LIMIT):
            await first.done
        assert b"[DONE]" not in first.bytes
        await until_idle(model)

    asyncio.run(run())


def test_what_cannot_begin_is_an_error_and_not_kept(make: MakeApp) -> None:
    app = make()

    async def run() -> None:
        bad = await Asked(app, CHAT, BODY | {"model": "nope"}, headers=HEADERS).whole()
        assert bad.status == 404
        await asyncio.sleep(0.01)
        assert (await asked(app, "/v1/stream", "conv_id=talk%3A%3Aa%2Fb%3AQ8_0")).status == 404

    asyncio.run(run())


@pytest.mark.parametrize(
    ("query", "param"),
    [("", "conv_id"), ("conv_id=", "conv_id"), ("conv_id=a&from=x", "from"),
     ("conv_id=a&from=-1", "from")],
)  # fmt: skip
def test_the_query_is_checked(make: MakeApp, query: str, param: str) -> None:
    app = make()

    async def run() -> None:
        found = await asked(app, "/v1/stream", query)
        assert (found.status, found.json["error"]["param"]) == (400, param)

    asyncio.run(run())


class Source:
    """A stream that begins and continues on command."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    def failure(self, error: ApiError) -> bytes:
        return f"[{error}]".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"ab", b"cd"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


class Client:
    """Receives everything."""

    def __init__(self) -> None:
        self.sent = b""

    async def __call__(self, message: Message) -> None:
        self.sent += message.get("body", b"")


def answer(streams: KeptStreams, name: str, source: Source, client: Client) -> Any:
    return streams.answer(name, source)({}, None, client)  # type: ignore[arg-type]


def test_one_that_has_not_begun_is_cancelled() -> None:
    async def run() -> None:
        streams = KeptStreams()
        asking = asyncio.ensure_future(answer(streams, "a", Source(), Client()))
        await asyncio.sleep(0)
        assert not streams.find("a").begun.done()
        streams.drop("a")
        with pytest.raises(ApiError) as found:
            await asking
        assert (found.value.status, found.value.code) == (400, "cancelled")

    asyncio.run(run())


def test_only_so_many_are_kept_and_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MOST_STREAMS", 2)
    monkeypatch.setattr("trinity.server.kept_stream.MOST_BYTES", 3)

    async def run() -> None:
        streams, sources = KeptStreams(), [Source() for _ in range(3)]
        clients = [Client() for _ in sources]
        asking = [
            asyncio.ensure_future(answer(streams, *one))
            for one in zip("ab", sources[:2], clients[:2], strict=True)
        ]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as found:
            await answer(streams, "c", sources[2], clients[2])
        assert found.value.status == 429
        sources[0].go.set()
        await asyncio.wait([streams.find("a").task])
        assert (streams.find("a").start, streams.find("a").end) == (1, 4)
        await asking[0]
        assert b"too slow" in clients[0].sent
        sources[2].go.set()
        await answer(streams, "b", sources[2], clients[2])
        with pytest.raises(ApiError):
            await asking[1]  # another one took the name
        streams.close()

    asyncio.run(run())


def test_the_document_has_the_query(make: MakeApp) -> None:
    app = make()

    async def run() -> None:
        paths = strict((await asked(app, "/openapi.json")).bytes)["paths"]
        parameters = paths["/v1/stream"]["get"]["parameters"]
        found = [(one["name"], one["in"], one["required"]) for one in parameters]
        assert found == [("conv_id", "query", True), ("from", "query", False)]
        assert "204" in paths["/v1/stream"]["delete"]["responses"]

    asyncio.run(run())
