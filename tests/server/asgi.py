"""Sends requests to an ASGI application without a socket; clients may disconnect at any moment."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Any

from starlette.types import ASGIApp, Message


class Asked:
    """A request in progress: the messages sent so far, and ``leave``, which disconnects."""

    def __init__(
        self, app: ASGIApp, path: str, body: object = None, *, method: str = "POST",
        headers: Iterable[tuple[str, str]] = (), query: str = "", content: bytes | None = None,
    ) -> None:  # fmt: skip
        self.sent: list[Message] = []
        self.leave = asyncio.Event()
        self._body = content or (b"" if body is None else json.dumps(body).encode())
        self._given = False
        self._some = asyncio.Event()
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "path": path, "raw_path": path.encode(), "query_string": query.encode(),
            "root_path": "", "scheme": "http", "server": ("localhost", 80),
            "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"localhost"),
                        *((k.encode(), v.encode()) for k, v in headers)],
        }  # fmt: skip
        self.done = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        self._some.set()

    async def until(self, count: int) -> None:
        """Wait until so many messages are sent."""
        while len(self.sent) < count:
            self._some.clear()
            await self._some.wait()

    async def whole(self) -> Asked:
        """Wait for the complete response."""
        await self.done
        return self

    @property
    def status(self) -> int:
        """The response's status."""
        return int(self.sent[0]["status"])

    @property
    def bytes(self) -> bytes:
        """The response's body."""
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def json(self) -> Any:
        """The response, parsed as strict JSON."""
        return strict(self.bytes)

    @property
    def events(self) -> list[Any]:
        """The data of a stream's events; "[DONE]" as it is."""
        return events(self.bytes)


def strict(data: bytes | str) -> Any:
    """Parse JSON without NaN and infinity."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(data, parse_constant=refuse)


def events(stream: bytes) -> list[Any]:
    """Parse the data of all events of a stream; "[DONE]" as it is."""
    found = []
    for block in stream.decode().split("\n\n"):
        block = re.sub(r"^id: \d+\n", "", block)
        if block and not block.startswith(":"):
            assert block.startswith("data: "), block
            data = block.removeprefix("data: ")
            found.append(data if data == "[DONE]" else strict(data))
    return found
