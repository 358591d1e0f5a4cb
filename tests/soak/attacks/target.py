"""What an attack gets: the server's address, an API key, its time, and functions of a client."""

from __future__ import annotations

import importlib
import json
import pkgutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any

CHAT = "/v1/chat/completions"
# The attacker's requests come from this address, those of the ordinary client from 127.0.0.1.
SOURCE = "127.0.0.2"
ATTACKERS_KEY = "the-key-of-the-attacker"
PATIENCE = 30.0  # seconds until an attacker's socket gives up


@dataclass(frozen=True)
class Attack:
    """``act`` attacks; ``server`` names one of the servers of tests/soak/fairness.py."""

    name: str
    act: Callable[[Target], None]
    server: str = "usual"


ATTACKS: dict[str, Attack] = {}


def attack(
    server: str = "usual",
) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
    """Declare a function of a Target as an attack. Its docstring says what it sends."""

    def declared(act: Callable[[Target], None]) -> Callable[[Target], None]:
        assert act.__name__ not in ATTACKS, f"two attacks are called {act.__name__}"
        assert act.__doc__, f"{act.__name__} needs a docstring"
        ATTACKS[act.__name__] = Attack(act.__name__, act, server)
        return act

    return declared


def all_attacks() -> dict[str, Attack]:
    """The attacks of every file in this folder, by name."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
    return ATTACKS


class Target:
    """The server under attack. The time runs from the first connection on.

    ``answers`` counts what came back: statuses, and "none" for connections that ended without one.
    """

    def __init__(self, port: int, seconds: float) -> None:
        self.port, self.seconds = port, seconds
        self.answers: Counter[str] = Counter()
        self.sent = 0  # bytes
        self._ends: float | None = None
        self._lock = threading.Lock()
        self._kept: list[socket.socket] = []

    def going(self) -> bool:
        """Whether the attack has time left."""
        return self._ends is None or time.monotonic() < self._ends

    def connect(self, *, buffer: int | None = None) -> socket.socket:
        """A connection that stays open until the attack ends, unless it is closed."""
        with self._lock:
            if self._ends is None:
                self._ends = time.monotonic() + self.seconds
        client = socket.socket()
        if buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.settimeout(PATIENCE)
        client.bind((SOURCE, 0))
        client.connect(("127.0.0.1", self.port))
        return client

    def head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        """A request's line and headers, with Host and the attacker's key unless they are given."""
        given = {"Host": "localhost", "Authorization": f"Bearer {ATTACKERS_KEY}", **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in given.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")

    def request(
        self, path: str, body: Any = None, headers: Mapping[str, str] = {}, method: str = ""
    ) -> bytes:
        """A whole request; a body that is not bytes is sent as JSON."""
        if body is None:
            return self.head(method or "GET", path, headers)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        length = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        return self.head(method or "POST", path, {**length, **headers}) + data

    def send(self, data: bytes, *, buffer: int | None = None) -> socket.socket:
        """Send bytes over a new connection, which stays open and unread."""
        client = self.connect(buffer=buffer)
        with self._lock:
            self._kept.append(client)
        self.write(client, data)
        return client

    def write(self, client: socket.socket, data: bytes) -> None:
        """Send more over a connection."""
        client.sendall(data)
        with self._lock:
            self.sent += len(data)

    def ask(
        self, path: str, body: Any = None, headers: Mapping[str, str] = {}, method: str = ""
    ) -> bytes:
        """Send a request, read the whole answer, count its status; what was answered."""
        return self.exchange(self.request(path, body, headers, method))

    def exchange(self, data: bytes) -> bytes:
        """Send bytes, read one answer."""
        found, body = "none", b""
        with suppress(OSError, HTTPException):
            client = self.connect()
            with client:
                with suppress(OSError):  # the server may answer and close before it has all
                    self.write(client, data)
                response = HTTPResponse(client)
                response.begin()
                found = str(response.status)
                body = response.read()
        self.count(found)
        return body

    def count(self, found: str) -> None:
        """Count what came back."""
        with self._lock:
            self.answers[found] += 1

    def again(self, act: Callable[[], object], clients: int = 1, pause: float = 0.0) -> None:
        """Do ``act`` again and again, by so many clients at once, until the time is over."""

        def loop() -> None:
            while self.going():
                with suppress(OSError):
                    act()
                if pause:
                    time.sleep(pause)

        for _ in range(clients):
            threading.Thread(target=loop, daemon=True).start()
        while self.going():
            time.sleep(0.02)

    def once(self, act: Callable[[], object], times: int) -> None:
        """Do ``act`` so many times while there is time, then keep all connections to the end."""
        for _ in range(times):
            if not self.going():
                return
            with suppress(OSError):
                act()
        while self.going():
            time.sleep(0.02)
