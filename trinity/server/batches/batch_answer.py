"""Runs rows of a batch: each is a request to an ASGI application, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from msgspec import to_builtins
from starlette.types import ASGIApp, Message

from trinity.errors import InputError
from trinity.server.batches.batch_output import BatchOutput
from trinity.server.batches.batch_rows import Row
from trinity.server.batches.offline_rows import SPEECH_URLS, form_of
from trinity.server.caller import OF_BATCH, OWNER
from trinity.server.errors import ApiError, openai_error

Ask = Callable[[Row], Awaitable[tuple[int, Any] | None]]


async def answer_rows(
    rows: Iterator[Row], output: BatchOutput, at_once: int, ask: Ask,
    written: Callable[[], Awaitable[None]],
) -> None:  # fmt: skip
    """Write the status and body that ``ask`` returns for each row, ``at_once`` rows at a time.

    It ends early if ``ask`` returns None. ``written`` is called after each row. Raises: what they
    raise.
    """

    reading, writing = asyncio.Lock(), asyncio.Lock()

    async def work() -> None:
        while True:
            async with reading:
                row = await asyncio.to_thread(next, rows, None)
            if row is None or (outcome := await ask(row)) is None:
                return
            async with writing:
                await asyncio.to_thread(output.add, row.custom_id, row.number, *outcome)
            await written()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work())
    except BaseExceptionGroup as errors:  # one of them says enough
        raise errors.exceptions[0] from None


async def answer(
    app: ASGIApp, row: Row, *, of_batch: bool = False, owner: str = ""
) -> tuple[int, Any]:
    """Status and body of the response to a row of an owner.

    ``of_batch``: it does not count as a live request.
    """
    sent: list[Message] = []
    kind = b"application/json"
    if row.url in SPEECH_URLS:
        try:
            kind, form = await asyncio.to_thread(form_of, row.body)
        except (InputError, OSError) as error:
            return 400, to_builtins(openai_error(ApiError(400, str(error), "file")))
        body = [form]
    else:
        body = [await asyncio.to_thread(lambda: json.dumps(row.body).encode())]
    left = asyncio.Event()  # never happens: there is no client

    async def receive() -> Message:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "path": row.url, "raw_path": row.url.encode(), "query_string": b"", "root_path": "",
        OF_BATCH: of_batch, OWNER: owner,
        "scheme": "http", "server": ("localhost", 80), "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"localhost"), (b"content-type", kind)],
    }, receive, send)  # fmt: skip
    whole = b"".join(message.get("body", b"") for message in sent)
    heads = dict(sent[0]["headers"])
    if not heads.get(b"content-type", b"application/json").startswith(b"application/json"):
        return int(sent[0]["status"]), whole.decode()  # text, SubRip or WebVTT
    return int(sent[0]["status"]), await asyncio.to_thread(json.loads, whole)
