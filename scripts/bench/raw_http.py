"""A minimal HTTP client for bench_server.py, which parses responses after they end.

A client that shares its processors with the server must be cheap.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPResponse
from time import perf_counter
from typing import Any

CONTENT = re.compile(rb'"content": ?("(?:[^"\\]|\\.)+")')


@dataclass
class Reply:
    """The chunks of a response and when they arrived, by ``time.perf_counter``."""

    started: float
    times: list[float] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)

    @property
    def ended(self) -> float:
        """The time of the last chunk."""
        return self.times[-1]

    def content_times(self) -> list[float]:
        """The times of the chunks that contain text of the completion."""
        pairs = zip(self.times, self.pieces, strict=True)
        return [time for time, piece in pairs if CONTENT.search(piece)]

    def first_content(self) -> str:
        """The text of the first such chunk."""
        found = next(found for piece in self.pieces if (found := CONTENT.findall(piece)))
        return "".join(map(json.loads, found))

    def body(self) -> bytes:
        """The body of the response. Ends the process if the status is not 200."""
        response = HTTPResponse(_Received(b"".join(self.pieces)))  # type: ignore[arg-type]
        response.begin()
        body = response.read()
        if response.status != 200:
            raise SystemExit(f"status {response.status}: {body.decode(errors='replace')[:500]}")
        return body

    def tokens(self) -> int:
        """The number of tokens of a streamed completion, from its last event."""
        lines = self.body().split(b"\n")
        events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
        if not events or not events[-1].get("usage"):
            raise SystemExit(f"a stream ended without its usage: {lines[-4:]}")
        return int(events[-1]["usage"]["completion_tokens"])


class _Received:
    """The received bytes in the form of a socket, for http.client."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


async def ask(
    url: str, path: str, body: Any = None, wanted: Callable[[Reply], bool] = lambda reply: True
) -> Reply:
    """Send GET, or POST if there is a ``body``, over a new connection.

    ``wanted`` is called after each chunk; if it returns False, reading ends.
    """
    host, _, port = url.removeprefix("http://").partition(":")
    text = b"" if body is None else json.dumps(body).encode()
    lines = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {host}:{port}",
        "Content-Type: application/json", f"Content-Length: {len(text)}", "Connection: close",
    ]  # fmt: skip
    reply = Reply(perf_counter())
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + text)
        while piece := await reader.read(1 << 16):
            reply.times.append(perf_counter())
            reply.pieces.append(piece)
            if not wanted(reply):
                break
    finally:
        writer.close()
    return reply
