"""Streams that a reader resumes behind its last event, also in another process."""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from scripts.kill_servers import Keeper, compared
from tests.server.asgi import Asked, strict
from tests.server.conftest import MakeApp, is_idle
from trinity import InputError
from trinity.model import Model
from trinity.server import kept as kept_module
from trinity.server.stream_log import MOST_FILES, Begun, StreamLogs

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HEADER = ("x-conversation-id", "a talk")
QUERY = "conv_id=a%20talk"
USER = [{"role": "user", "content": "Hello"}]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}},
          "required": ["name"], "additionalProperties": False}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
BODY = {"messages": USER, "stream": True, "max_tokens": 30, "seed": 3, "ignore_eos": True}
REQUESTS: dict[str, tuple[str, Any]] = {
    "chat": (CHAT, BODY),
    "usage": (CHAT, {**BODY, "stream_options": {"include_usage": True}}),
    "no seed": (CHAT, {"messages": USER, "stream": True, "max_tokens": 30}),
    "form": (CHAT, {**BODY, "ignore_eos": False, "max_tokens": 60, "response_format": {
        "type": "json_schema", "json_schema": {"name": "form", "schema": SCHEMA}}}),
    "tool": (CHAT, {**BODY, "ignore_eos": False, "max_tokens": 60, "tools": [TOOL],
                    "tool_choice": "required"}),
    "text": (COMPLETIONS, {"prompt": "Prince", "stream": True, "max_tokens": 30, "seed": 1}),
    "responses": (RESPONSES, {"input": "Hello", "stream": True, "max_output_tokens": 30,
                              "temperature": 0}),
    "messages": ("/v1/messages", {"model": "demo", "messages": USER, "stream": True,
                                  "max_tokens": 30, "temperature": 0}),
}  # fmt: skip
# What depends on the time that an answer took.
TIMES = re.compile(rb'"(timings|usage)": ?\{.*?\}+(?=[,}])|"cpu_seconds": ?[\d.e-]+')


def blocks(stream: bytes) -> list[bytes]:
    """A stream's events, without times."""
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
        await first.until(4)
        first.leave.set()
        await first.done
        had = len(blocks(first.bytes.rpartition(b"\n\n")[0]))
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


@pytest.mark.parametrize("kind", REQUESTS)
def test_another_process_goes_on_where_a_file_ends(
    make: MakeApp, tmp_path: Path, kind: str
) -> None:
    path, body = REQUESTS[kind]

    async def whole() -> bytes:
        return (await Asked(make(state=tmp_path), path, body, headers=[HEADER]).whole()).bytes

    async def again(last: int) -> Asked:
        return await resumed(make(state=tmp_path), last)

    expected = blocks(asyncio.run(whole()))
    (file,) = (tmp_path / "streams").glob("*.stream")
    data = file.read_bytes()
    head = data.index(b"\n") + 1
    chance = random.Random(kind)
    for cut in (0, 3, 8, len(data) - head, *(chance.randrange(len(data) - head) for _ in range(4))):
        file.write_bytes(data[: head + cut])
        last = chance.randrange(len(expected))
        assert blocks(asyncio.run(again(last)).bytes) == expected[last:]
        assert file.read_bytes() == data


def test_a_damaged_file_is_noticed(make: MakeApp, tmp_path: Path) -> None:
    async def whole() -> bytes:
        return (await Asked(make(state=tmp_path), CHAT, BODY, headers=[HEADER]).whole()).bytes

    async def again() -> Asked:
        return await resumed(make(state=tmp_path), 0)

    expected = blocks(asyncio.run(whole()))
    (file,) = (tmp_path / "streams").glob("*.stream")
    data = file.read_bytes()
    head = data.index(b"\n") + 1
    for place in sorted({*range(0, len(data), 7), head - 1, head}):
        damaged = bytearray(data)
        damaged[place] ^= 4
        file.write_bytes(damaged)
        found = asyncio.run(again())
        if place < head:
            assert found.status == 404
        else:
            assert blocks(found.bytes) == expected
    other = json.loads(data[9:head])
    logs = StreamLogs(tmp_path / "streams")
    logs.create(Begun(**{**other, "model": "another"})).close()
    assert asyncio.run(again()).status == 409


def test_two_processes_do_not_write_one_file(make: MakeApp, tmp_path: Path) -> None:
    async def run() -> None:
        one, other = make(state=tmp_path), make(state=tmp_path)
        first = Asked(one, CHAT, {**BODY, "max_tokens": 200}, headers=[HEADER])
        await first.until(2)
        assert (await resumed(other, 1)).status == 409
        assert (await Asked(one, "/v1/stream", method="DELETE", query=QUERY).whole()).status == 204
        await first.done
        assert (await resumed(other, 1)).status == 404
        assert not list((tmp_path / "streams").glob("*.stream"))

    asyncio.run(run())


def test_what_cannot_be_made_again_has_no_file(make: MakeApp, tmp_path: Path) -> None:
    async def run() -> None:
        app = make(state=tmp_path)
        for more in ({"n": 2}, {"logprobs": True}, {"timings_per_token": True}):
            answer = await Asked(app, CHAT, {**BODY, **more}, headers=[HEADER]).whole()
            assert answer.status == 200
            assert not list((tmp_path / "streams").glob("*.stream"))
        await Asked(app, CHAT, BODY).whole()
        assert not list((tmp_path / "streams").glob("*.stream"))

    asyncio.run(run())


def test_files_are_few_and_private(make: MakeApp, tmp_path: Path) -> None:
    logs = StreamLogs(tmp_path / "streams")
    begun = Begun("a", CHAT, strict('"{}"'), "", "demo", [1], 0, 0, 0, None, "")
    for number in range(MOST_FILES + 9):
        name = str(number)
        logs.create(
            Begun(**{**{k: getattr(begun, k) for k in begun.__slots__}, "name": name})
        ).close()
    found = list((tmp_path / "streams").glob("*.stream"))
    assert len(found) == MOST_FILES
    assert {one.stat().st_mode & 0o777 for one in found} == {0o600}
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="no streams can be kept"):
        make(state=tmp_path / "file")


def test_kill_minus_nine_changes_no_byte(tmp_path: Path) -> None:
    keeper = Keeper(["--threads", "1"], tmp_path)
    try:
        assert asyncio.run(compared(2, 3, 600, 0.3, keeper))
    finally:
        keeper.kill()
