"""Streams whose resumption is refused, or whose file cannot be written: nothing of them is lost."""

from __future__ import annotations

import asyncio
import errno
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from tests.server.asgi import Asked
from tests.server.conftest import LIMIT, MakeApp
from tests.server.test_resume import BODY, CHAT, HEADER, USER, blocks, resumed
from trinity.server import stream_log
from trinity.server.dispatch import Service
from trinity.server.errors import ApiError

UMLAUT = "f\u00fcr"


async def whole(app: Any, name: str = HEADER[1]) -> Asked:
    headers = [(HEADER[0], name)]
    return await asyncio.wait_for(Asked(app, CHAT, BODY, headers=headers).whole(), LIMIT)


def cut(folder: Path) -> Path:
    """The file of a stream, as if its process had ended after five tokens."""
    (file,) = folder.glob("streams/*.stream")
    data = file.read_bytes()
    file.write_bytes(data[: data.index(b"\n") + 1 + 40])
    return file


def test_who_is_refused_may_ask_again(
    make: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: Service, name: str | None, job: object) -> None:
        raise ApiError(429, "the queue is full", code="queue_full")

    async def run() -> None:
        expected = await whole(make(state=tmp_path))
        file, app = cut(tmp_path), make(state=tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(Service, "start", refused)
            assert (await resumed(app, 2)).status == 429
            await asyncio.sleep(0.05)
        assert file.exists()
        assert blocks((await resumed(app, 2)).bytes) == blocks(expected.bytes)[2:]

    asyncio.run(run())


def test_other_options_of_the_server_are_another_answer(make: MakeApp, tmp_path: Path) -> None:
    def app(**defaults: object) -> Any:
        return make(state=tmp_path, defaults=defaults)

    async def run() -> None:
        expected = await whole(app(temperature=0.5))
        file = cut(tmp_path)
        refused = await resumed(app(temperature=0.6), 2)
        assert refused.status == 409
        assert b"other options for answers" in refused.bytes
        assert file.exists()
        again = await resumed(app(temperature=0.5), 2)
        assert blocks(again.bytes) == blocks(expected.bytes)[2:]

    asyncio.run(run())


@pytest.mark.parametrize("after", [0, 1, 9])
def test_a_full_disk_ends_no_stream(
    make: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    real, calls = stream_log.write, 0

    def full(file: FileIO, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            real(file, data[:3])
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, data)

    async def run() -> None:
        expected = await whole(make())
        monkeypatch.setattr(stream_log, "write", full)
        app = make(state=tmp_path)
        found = await whole(app)
        assert blocks(found.bytes)[1:] == [
            one.replace(_id(expected), _id(found)) for one in blocks(expected.bytes)[1:]
        ]
        assert not list(tmp_path.glob("streams/*.stream"))
        assert blocks((await resumed(app, 4)).bytes) == blocks(found.bytes)[4:]

    def _id(asked: Asked) -> bytes:
        """What another answer has otherwise: its id and its time."""
        first = asked.bytes.partition(b'"id":')[2]
        return first.partition(b'"model"')[0]

    asyncio.run(run())


def test_another_apis_stream_is_not_resumed(make: MakeApp) -> None:
    async def run() -> None:
        app = make()
        await whole(app)
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


def test_a_stream_that_is_forgotten_leaves_another_processs_file(
    make: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trinity.server.kept.KEPT_SECONDS", 0.5)

    async def run() -> None:
        one, other = make(state=tmp_path), make(state=tmp_path)
        await whole(one)
        monkeypatch.setattr("trinity.server.kept.KEPT_SECONDS", 300.0)
        await whole(other)
        await asyncio.sleep(1.0)
        assert (await resumed(one, 1)).status == 200
        assert list(tmp_path.glob("streams/*.stream"))

    asyncio.run(run())
