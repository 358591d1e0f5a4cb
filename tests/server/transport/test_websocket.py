"""WebSockets behind a socket: the handshake, and clients that break rules, leave or stall."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Message,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.extensions import PerMessageDeflate

from tests.server.conftest import LIMIT, MakeApp, is_idle, socket_server, wait_for
from tests.server.held import Held
from trinity.model import Model
from trinity.server.transport import pace, websocket

PATH = "/v1/responses"
ASKED = {"type": "response.create", "input": "Who was Pierre?", "temperature": 0,
         "max_output_tokens": 4}  # fmt: skip
LONG = json.dumps({**ASKED, "max_output_tokens": 450})


class Client:
    """A client of wsproto over a socket of its own."""

    def __init__(self, url: str, path: str = PATH, **headers: str) -> None:
        port = int(url.rsplit(":", 1)[1])
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
        self.wire = WSConnection(ConnectionType.CLIENT)
        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.send(
            Request(host=f"127.0.0.1:{port}", target=path, extra_headers=named,
                    extensions=[PerMessageDeflate()])
        )  # fmt: skip
        self.events = self._events()

    def send(self, event: Event) -> None:
        self.socket.sendall(self.wire.send(event))

    def send_text(self, text: str) -> None:
        self.send(Message(data=text))

    def _events(self) -> Iterator[Event]:
        while True:
            yield from self.wire.events()
            data = self.socket.recv(1 << 16)
            if not data:
                return
            self.wire.receive_data(data)

    def text(self) -> Any:
        """The next message."""
        text = ""
        for event in self.events:
            if isinstance(event, TextMessage):
                text += event.data
                if event.message_finished:
                    return json.loads(text)
            assert isinstance(event, AcceptConnection | Ping | Pong), event
        raise AssertionError("the connection has ended")

    def until(self, *kinds: str) -> Any:
        while (found := self.text())["type"] not in kinds:
            pass
        return found

    def end(self) -> CloseConnection:
        for event in self.events:
            if isinstance(event, CloseConnection):
                if self.wire.state.name == "REMOTE_CLOSING":
                    self.send(event.response())
                assert self.socket.recv(1) == b""
                return event
        raise AssertionError("there was no end")


@contextmanager
def connected(url: str, path: str = PATH, **headers: str) -> Iterator[Client]:
    client = Client(url, path, **headers)
    try:
        assert isinstance(next(client.events), AcceptConnection)
        yield client
    finally:
        client.socket.close()


def test_messages_and_the_end(url: str) -> None:
    with connected(url) as client:
        for _ in range(2):
            client.send_text(json.dumps(ASKED))
            client.until("response.completed", "response.incomplete")
        client.send(Ping(b"abc"))
        assert next(client.events) == Pong(b"abc")
        client.send(CloseConnection(1000))
        assert client.end().code == 1000


@pytest.mark.parametrize("path", ["/v1/responses?model=demo", "/responses", "/v1?model=demo"])
def test_other_addresses(url: str, path: str) -> None:
    with connected(url, path) as client:
        client.send_text(json.dumps(ASKED))
        assert client.text()["type"] == "response.created"


def test_a_message_of_many_parts(url: str) -> None:
    text = json.dumps(ASKED)
    with connected(url) as client:
        for i, letter in enumerate(text):
            client.send(Message(data=letter, message_finished=i == len(text) - 1))
            if i % 20 == 0:
                client.send(Ping())  # between the parts
        found = next(event for event in client.events if not isinstance(event, Pong))
        assert isinstance(found, TextMessage)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-WebSocket-Version": "12"}, 400),
        ({"Connection": "keep-alive"}, 400),
        ({"Content-Length": "3"}, 400),
        ({"Origin": "https://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),
    ],
)
def test_handshakes(url: str, headers: dict[str, str], status: int) -> None:
    usual = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
             "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode()}  # fmt: skip
    named = {"Host": url.removeprefix("http://"), **usual, **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), LIMIT) as client:
        client.sendall(f"GET {PATH} HTTP/1.1\r\n{lines}\r\n".encode())
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 %d" % status)


def test_a_refusal_is_an_error_of_the_api(make: MakeApp) -> None:
    with socket_server(make(api_key=["the-secret-key"])) as url:
        client = Client(url)
        status, *parts = list(client.events)
        client.socket.close()
        assert isinstance(status, RejectConnection)
        assert status.status_code == 401
        body = b"".join(part.data for part in parts if isinstance(part, RejectData))
        assert json.loads(body)["error"]["code"] == "invalid_api_key"
        with connected(url, Authorization="Bearer the-secret-key"):
            pass


def test_an_upgrade_after_another_request(url: str) -> None:
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), LIMIT) as client:
        host = f"Host: {url.removeprefix('http://')}\r\n".encode()
        client.sendall(b"GET /health HTTP/1.1\r\n%b\r\n" % host)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
        client.sendall(
            b"GET %b HTTP/1.1\r\n%bConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            % (PATH.encode(), host)
            + frame(1, json.dumps(ASKED).encode())  # it does not wait for the acceptance
        )
        received = b""
        while b"response.created" not in received:
            more = client.recv(1 << 16)
            assert more
            received += more
        assert received.startswith(b"HTTP/1.1 101")


def frame(opcode: int, payload: bytes = b"", *, mask: bool = True, length: int = -1) -> bytes:
    """A frame whose mask is zero. ``length``: the one that it claims."""
    size = len(payload) if length < 0 else length
    short = size if size < 126 else 126 if size < 1 << 16 else 127
    head = bytes([0x80 | opcode, (0x80 if mask else 0) | short])
    head += struct.pack("!Q", size)[{126: 6, 127: 0}.get(short, 8) :]
    return head + (bytes(4) if mask else b"") + payload


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(1, b"{}", mask=False), 1002),
        (frame(3, b"{}"), 1002),
        (frame(1, b"\xff\xff"), 1007),
        (frame(0, b"x"), 1002),
        (frame(9, b"x" * 200), 1002),
        (frame(1, b"x", length=2**63), 1002),
        (bytes([0xC1, 0x80, 0, 0, 0, 0]), 1002),  # compressed, which was not agreed
    ],
)
def test_frames_that_break_the_rules_end_it(url: str, sent: bytes, code: int) -> None:
    with connected(url) as client:
        client.socket.sendall(sent)
        assert client.end().code == code


def test_a_message_that_is_too_long_ends_it(make: MakeApp) -> None:
    app = make(max_body=4096, max_audio=8192)
    with socket_server(app, max_body=4096, max_audio=8192) as url, connected(url) as client:
        client.send_text(json.dumps({**ASKED, "input": "x" * 5000}))
        assert client.text()["status"] == 413
        client.send_text("x" * 9000)
        assert client.end().code == websocket.TOO_LARGE


def test_all_incomplete_messages_are_limited(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "MOST_PARTIAL", 100_000)
    with connected(url) as one, connected(url) as two:
        one.send(Message(data="x" * 60_000, message_finished=False))
        two.send(Message(data="x" * 60_000, message_finished=False))
        ended = [client for client in (one, two) if client.socket in readable(one, two)]
        assert [client.end().code for client in ended] == [websocket.BUSY]
        (other,) = {one, two} - set(ended)
        other.send(Message(data="", message_finished=True))
        assert other.text()["type"] == "error"
    with connected(url) as one:  # what left does not count
        one.send(Message(data="x" * 99_000))
        assert one.text()["type"] == "error"


def readable(*clients: Client) -> list[socket.socket]:
    import select

    return select.select([client.socket for client in clients], [], [], LIMIT)[0]


@pytest.mark.parametrize("politely", [True, False])
def test_a_client_that_leaves_ends_its_responses(url: str, model: Model, politely: bool) -> None:
    with connected(url) as client:
        for lane in "ab":
            client.send_text(json.dumps({**json.loads(LONG), "stream_id": lane}))
        client.until("response.output_text.delta")
        assert not is_idle(model)
        if politely:
            client.send(CloseConnection(1000))
            client.end()
    wait_for(lambda: is_idle(model))


def test_a_slow_message_ends_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STALL_SECONDS", 0.5)
    with connected(url) as client:
        client.send(Message(data="x", message_finished=False))
        with pytest.raises((AssertionError, ConnectionResetError)):
            client.text()


def test_silent_connections_get_pings(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.5)
    with connected(url) as client:
        assert isinstance(next(client.events), Ping)
        client.send_text(json.dumps(ASKED))
        assert client.text()["type"] == "response.created"


def test_small_frames_do_not_hold_up_others(url: str, held: Held) -> None:
    """Many pings in one go take long to parse; they are parsed in turns."""
    pings = bytes([0x89, 0x80, 0, 0, 0, 0]) * 20_000

    def work() -> None:
        with connected(url) as client:
            held.clear()
            client.socket.sendall(pings)
            client.send_text("{}")
            assert client.until("error")

    held.check(work)


def test_the_server_ends_after_the_response(make: MakeApp, model: Model) -> None:
    with socket_server(make(), drain=30) as url:
        idle = Client(url)
        busy = Client(url)
        assert all(isinstance(next(one.events), AcceptConnection) for one in (idle, busy))
        busy.send_text(json.dumps({**ASKED, "max_output_tokens": 100}))
        busy.until("response.output_text.delta")
    # The server has ended.
    assert next(iter(idle.events), None) == CloseConnection(websocket.RESTARTS, "")
    busy.until("response.completed", "response.incomplete")
    assert next(iter(busy.events), None) == CloseConnection(websocket.RESTARTS, "")
    for one in (idle, busy):
        one.socket.close()
