"""The answer to a row of a batch: the row goes to an application as a request, without a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.types import ASGIApp, Message

from trinity.server.batch_rows import Row


async def answer(app: ASGIApp, row: Row, *, of_batch: bool = False) -> tuple[int, Any]:
    """Status and body of the answer to a row; ``of_batch``: it counts as no live request."""
    sent: list[Message] = []
    body: list[bytes] = [json.dumps(row.body).encode()]
    left = asyncio.Event()  # never: nobody leaves

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
        "trinity.of_batch": of_batch,
        "scheme": "http", "server": ("localhost", 80), "client": ("127.0.0.1", 1),
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }, receive, send)  # fmt: skip
    whole = b"".join(message.get("body", b"") for message in sent)
    return int(sent[0]["status"]), json.loads(whole)
