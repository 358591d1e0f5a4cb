"""Measures the chats of an ordinary client and /health during an attack."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

KEY = "the-key-of-the-ordinary-client"
TOKENS = 32
PAUSE = 0.02  # seconds between two questions
PATIENCE = 20.0  # seconds until a question counts as unanswered
CONTENT = re.compile(rb'"content": ?"(?:[^"\\]|\\.)+"')


def ask(port: int, request: bytes) -> Iterator[tuple[float, bytes]]:
    """What comes back over a new connection, with the seconds since it was asked for."""
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(request)
        while piece := client.recv(1 << 16):
            yield time.perf_counter() - began, piece


def health(port: int) -> tuple[int, float]:
    """The status of /health, and the seconds until it came."""
    found, seconds = b"", 0.0
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for moment, piece in ask(port, request):
        found, seconds = found + piece, moment
    return int(found.split(b" ", 2)[1]) if found else 0, seconds


def chat(port: int, more: dict[str, Any] | None = None) -> tuple[float, float]:
    """Seconds until the first token of a streamed chat, and the longest between two tokens.

    Raises: RuntimeError where the answer is not the whole one.
    """
    body = {
        "messages": [{"role": "user", "content": f"It is {time.time()}."}], "stream": True,
        "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, **(more or {}),
    }  # fmt: skip
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    times, got = [], b""
    for seconds, piece in ask(port, head.encode() + data):
        got += piece
        if CONTENT.search(piece):
            times.append(seconds)
    if not times or b"[DONE]" not in got[-100:]:
        raise RuntimeError(f"an ordinary chat got {got[:300]!r}")
    return times[0], max((b - a for a, b in pairwise(times)), default=0.0)


@dataclass
class Times:
    """Seconds that an ordinary client and /health waited; ``failures``: what was not answered."""

    firsts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    healths: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def worst(self) -> tuple[float, float, float]:
        """The longest first token, gap, and answer of /health."""
        return (
            max(self.firsts, default=0.0),
            max(self.gaps, default=0.0),
            max(self.healths, default=0.0),
        )


class Watch:
    """Asks a server in threads until it is ended."""

    def __init__(self, port: int) -> None:
        self.times = Times()
        self._port, self._ending = port, threading.Event()
        self._threads = [
            threading.Thread(target=self._loop, args=(one,)) for one in (self._chat, self._health)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> Times:
        """The times of all that was asked, once the last has been answered."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        return self.times

    def _loop(self, question: Callable[[], None]) -> None:
        while not self._ending.is_set():
            try:
                question()
            except (OSError, RuntimeError) as error:
                self.times.failures.append(f"{type(error).__name__}: {error}")
            self._ending.wait(PAUSE)

    def _chat(self) -> None:
        first, gap = chat(self._port)
        self.times.firsts.append(first)
        self.times.gaps.append(gap)

    def _health(self) -> None:
        status, seconds = health(self._port)
        self.times.healths.append(seconds)
        if status != 200:
            self.times.failures.append(f"/health answered {status}")
