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
    """What came, and when, by ``time.perf_counter``."""

    started: float
    times: list[float] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)

    @property
    def ended(self) -> float:
        """When the last of it came."""
        return self.times[-1]

    def content_times(self) -> list[float]:
        """When the pieces came that have some of the answer's text."""
        pairs = zip(self.times, self.pieces, strict=True)
        return [time for time, piece in pairs if CONTENT.search(piece)]

    def first_content(self) -> str:
        """The text of the first such piece."""
        found = next(found for piece in self.pieces if (found := CONTENT.findall(piece)))
        return "".join(map(json.loads, found))

    def body(self) -> bytes:
        """What was answered. Ends the process where the status is not 200."""
        response = HTTPResponse(_Received(b"".join(self.pieces)))  # type: ignore[arg-type]
        response.begin()
        body = response.read()
        if response.status != 200:
            raise SystemExit(f"status {response.status}: {body.decode(errors='replace')[:500]}")
        return body

    def tokens(self) -> int:
        """The tokens of a streamed answer, as its last event counts them."""
        lines = self.body().split(b"\n")
        events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
        if not events or not events[-1].get("usage"):
            raise SystemExit(f"a stream ended without its usage: {lines[-4:]}")
        return int(events[-1]["usage"]["completion_tokens"])


class _Received:
    """What http.client takes for a socket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


async def ask(
    url: str, path: str, body: Any = None, wanted: Callable[[Reply], bool] = lambda reply: True
) -> Reply:
    """GET, or POST where there is a ``body``, over a connection of its own.

    ``wanted`` is asked after each piece whether there shall be more.
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
