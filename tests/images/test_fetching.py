"""Images of URLs: addresses, redirects, sizes and times."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trinity.errors import InputError
from trinity.images.fetching import fetched, is_public

CONTENT = b"x" * 1000


class Handler(BaseHTTPRequestHandler):
    """Answers as the path says."""

    def do_GET(self) -> None:
        kind = self.path.partition("?")[0]
        if kind.startswith("/to"):
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.end_headers()
            return
        self.send_response(404 if kind == "/missing" else 200)
        if kind != "/unknown":
            self.send_header("Content-Length", "5000" if kind == "/short" else "1000")
        if kind == "/headers":
            self.flush_headers()
            for _ in range(40):
                self.wfile.write(b"X-A: b\r\n")
                time.sleep(0.1)
        self.end_headers()
        if kind == "/slow":
            for byte in CONTENT:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.1)
        self.wfile.write(CONTENT * (100 if kind == "/unknown" else 1))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server that images.test is; its address counts as public."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    own = server.server_address[1]
    known = {"images.test": "93.184.215.14", "inner.test": "10.0.0.1"}

    def resolved(host: str, port: int, **_: Any) -> list[Any]:
        if host not in known:
            raise socket.gaierror(8, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[host], port))]

    connect = socket.create_connection
    monkeypatch.setattr(socket, "getaddrinfo", resolved)

    def connected(address: tuple[str, int], **options: Any) -> socket.socket:
        assert address[0] == "93.184.215.14"  # that was checked
        monkeypatch.undo()
        try:
            return connect(("127.0.0.1", address[1]), **options)
        finally:
            monkeypatch.setattr(socket, "getaddrinfo", resolved)
            monkeypatch.setattr(socket, "create_connection", connected)

    monkeypatch.setattr(socket, "create_connection", connected)
    yield own
    server.shutdown()
    server.server_close()


def get(url: str, most: int = 5000, seconds: float = 5.0) -> bytes:
    return fetched(url, "image 0", most, time.monotonic() + seconds)


def test_an_image_is_fetched(port: int) -> None:
    assert get(f"http://images.test:{port}/a.png?b=c#d") == CONTENT
    assert get(f"http://images.test:{port}/to?/a.png") == CONTENT
    assert get(f"http://images.test:{port}/unknown", most=100_000) == CONTENT * 100


@pytest.mark.few(1)
@pytest.mark.parametrize(("path", "message"), [
    ("/missing", "has status 404; check the URL"),
    ("/short", "IncompleteRead"),
    ("/to?/to?/to?/to?/a", "more than 3 redirects"),
    ("/to?http://inner.test/a", "its address is not public"),
    ("/to?http://127.0.0.1/a", "no address|not public"),
    ("/to?file:///etc/passwd", "not the URL of an image"),
    ("/to?", "redirects"),
    ("/unknown", "more than 5000 bytes"),
])  # fmt: skip
def test_what_is_not_fetched(path: str, message: str, port: int) -> None:
    with pytest.raises(InputError, match=message):
        get(f"http://images.test:{port}{path}")


def test_a_known_size_that_is_too_large_is_not_read(port: int) -> None:
    with pytest.raises(InputError, match="more than 999 bytes"):
        get(f"http://images.test:{port}/slow", most=999)


@pytest.mark.few(1)
@pytest.mark.parametrize("path", ["/slow", "/headers"])
def test_a_slow_server_is_left(path: str, port: int) -> None:
    start = time.monotonic()
    with pytest.raises(InputError, match="no complete response in time"):
        get(f"http://images.test:{port}{path}", seconds=0.5)
    assert time.monotonic() - start < 3


@pytest.mark.parametrize("url", [
    "http://user:word@images.test/a", "http://images.test\\@127.0.0.1/a", "ftp://images.test/a",
    "http:///a", "http://images.test:99999/a", "http://images.test/a b", "http://im\u00e4ges.test/",
    "http://images.test/\r\nHost: a", "http://[::1", "http://images.test%2f/", "//images.test/a",
    f"http://images.test/{5000 * 'a'}",
])  # fmt: skip
def test_a_url_is_plain(url: str) -> None:
    with pytest.raises(InputError, match="not the URL of an image"):
        get(url)


@pytest.mark.parametrize(("address", "public"), [
    ("93.184.215.14", True), ("8.8.8.8", True), ("2606:4700:4700::1111", True),
    ("127.0.0.1", False), ("0.0.0.0", False), ("10.1.2.3", False), ("172.16.0.1", False),
    ("192.168.1.1", False), ("169.254.169.254", False), ("100.64.0.1", False),
    ("224.0.0.1", False), ("255.255.255.255", False), ("::1", False), ("::", False),
    ("fe80::1%eth0", False), ("fe80::1", False), ("fd00::1", False), ("ff02::1", False),
    ("::ffff:127.0.0.1", False), ("::ffff:8.8.8.8", False), ("64:ff9b::7f00:1", False),
    ("2002:7f00:1::", False), ("2001:0:1::1", False), ("2001:db8::1", False),
])  # fmt: skip
def test_public_addresses(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "localhost", "[::1]"])
def test_names_of_this_machine_are_not_fetched(host: str) -> None:
    with pytest.raises(InputError, match=r"not public|no address"):
        get(f"http://{host}/a")


def test_all_addresses_of_a_name_must_be_public(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(2, 1, 6, "", (address, 80)) for address in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(InputError, match="not public"):
        get("http://images.test/a")


def test_nothing_is_left_open(port: int) -> None:
    get(f"http://images.test:{port}/a")
    for _ in range(100):  # a timer ends soon after it is cancelled
        if not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()):
            return
        time.sleep(0.05)
    raise AssertionError(threading.enumerate())
