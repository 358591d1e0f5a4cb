"""HTTP that is slow to parse: a body in tiny chunks, many header lines, a long query."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.server.conftest import LIMIT, MakeApp, socket_server
from tests.server.held import Held
from trinity.server.transport import wire
from trinity.server.transport.wire import CHUNK, MOST_CHUNKS, MOST_LINES

POST = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def url(make: MakeApp) -> Iterator[str]:
    with socket_server(make()) as url:
        yield url


def asked(url: str, sent: bytes) -> bytes:
    """Return what a server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), LIMIT) as connection:
        found = b""
        try:
            connection.sendall(sent)
            while piece := connection.recv(1 << 16):
                found += piece
                head, _, body = found.partition(b"\r\n\r\n")
                if b"Content-Length: %d\r\n" % len(body) in head + b"\r\n":
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
    return found


def chunks(body: bytes, size: int) -> bytes:
    parts = [body[i : i + size] for i in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in parts) + b"0\r\n\r\n"


def text(size: int) -> bytes:
    """Return a body of so many bytes."""
    return json.dumps({"content": "x" * (size - len(json.dumps({"content": ""})))}).encode()


@pytest.mark.full
def test_a_body_in_tiny_chunks_is_refused(url: str, held: Held) -> None:
    def test() -> None:
        found = asked(url, CHUNKED + chunks(text(1_000_000), 1))
        assert not found or (found.startswith(b"HTTP/1.1 400 ") and b"chunks" in found)

    held.check(test)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("size", "chunk"), [(MOST_CHUNKS - 10, 1), (100_000, 25), (3_000_000, CHUNK)]
)
def test_a_body_in_chunks_that_may_be_comes_whole(
    url: str, held: Held, size: int, chunk: int
) -> None:
    body = text(size)
    plain = asked(url, POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def test() -> None:
        found = asked(url, CHUNKED + chunks(body, chunk))
        assert found.startswith(b"HTTP/1.1 200 ")
        assert found.partition(b"\r\n\r\n")[2] == plain.partition(b"\r\n\r\n")[2]

    held.check(test)


def test_requests_behind_a_body_in_chunks_are_answered(url: str) -> None:
    one = CHUNKED + chunks(text(3000), 1)
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), LIMIT) as connection:
        connection.sendall(one + one + last)
        found = b""
        while piece := connection.recv(1 << 16):
            found += piece
    assert found.count(b"HTTP/1.1 200 ") == 3


@pytest.mark.parametrize("line", [b"a:b\r\n", b"a: %b\r\n" % (b"," * 200), b"a:\n"])
def test_a_head_of_many_lines_is_refused(url: str, held: Held, line: bytes) -> None:
    def test() -> None:
        found = asked(url, POST + line * (MOST_LINES + 1) + b"\r\n")
        assert found.startswith(b"HTTP/1.1 400 ")
        assert b"more than %d lines" % MOST_LINES in found

    held.check(test)


def test_lines_of_a_body_are_no_lines_of_the_head(url: str) -> None:
    body = b"\n" * 5000 + b'{"content":"x"}'
    found = asked(url, POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    assert found.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("query", [b"a&" * 30_000, b"a=%41&" * 10_000, b"%41" * 20_000])
def test_a_long_query_does_not_hold_the_loop(url: str, held: Held, query: bytes) -> None:
    head = b"GET /v1/stream?conv_id=x&%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % query

    def test() -> None:
        assert asked(url, head).startswith(b"HTTP/1.1 4")

    held.check(test)


@pytest.mark.parametrize("seconds", [0.0, 2e-5, 1e-4])
def test_parsing_in_turns_changes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """With 0 each turn parses one event."""
    monkeypatch.setattr(wire, "TURN_SECONDS", seconds)
    found = asked(url, CHUNKED + chunks(b'{"content":"Prince Andrew"}', 1))
    assert json.loads(found.partition(b"\r\n\r\n")[2])["tokens"]


def test_chunks_with_long_extensions_do_not_hold_the_loop(url: str, held: Held) -> None:
    parts = b"".join(b"1;%b\r\n%c\r\n" % (b"x=y;" * 2000, byte) for byte in text(400))

    def test() -> None:
        found = asked(url, CHUNKED + parts + b"0\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 200 ")

    held.check(test)


@pytest.mark.parametrize("last", [b"0", b"000;a=b"])
@pytest.mark.parametrize("pause", [False, True])
def test_many_trailers_are_refused(url: str, held: Held, last: bytes, pause: bool) -> None:
    """``pause``: a few lines come first."""
    lines = b"a: b\r\n" * (MOST_LINES + 2)
    body = CHUNKED + chunks(text(100), 50)[:-5] + last + b"\r\n"

    def test() -> None:
        port = int(url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), LIMIT) as connection:
            connection.sendall(body + lines[:60] * pause)
            if pause:
                assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200
            connection.sendall(lines[60 * pause :] + b"\r\n")
            found = b""
            while piece := connection.recv(1 << 16):
                found += piece
        assert found.startswith(b"HTTP/1.1 400 ")
        assert b"trailer of the request has more than %d lines" % MOST_LINES in found

    held.check(test)


def test_a_few_trailers_are_accepted(url: str) -> None:
    body = CHUNKED + chunks(text(100), 50)[:-2] + b"a: b\r\n" * 10 + b"\r\n"
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    found = b""  # of both responses: ``asked`` may end after the first
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), LIMIT) as connection:
        connection.sendall(body + last)
        while piece := connection.recv(1 << 16):
            found += piece
    assert found.count(b"HTTP/1.1 200 ") == 2
