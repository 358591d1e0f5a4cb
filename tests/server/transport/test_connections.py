"""The limit of connections, and what slow clients can occupy."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.server.conftest import LIMIT, MakeApp, socket_server, wait_for
from tests.server.test_leaving import nobody_gets_on
from trinity.model import Model
from trinity.server.errors import ApiError
from trinity.server.transport import accepting, bodies, connection, connections, pace

CHAT = "/v1/chat/completions"
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
LARGE = 6 << 20  # more than the system takes of what is not read


@contextmanager
def clients(url: str) -> Iterator[Callable[..., socket.socket]]:
    """Makes clients that send requests and read little of the responses."""
    with ExitStack() as open_sockets:

        def made(sent: bytes, address: str = "127.0.0.1") -> socket.socket:
            client = open_sockets.enter_context(socket.socket())
            client.bind((address, 0))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(LIMIT)
            client.connect(("127.0.0.1", int(url.rsplit(":", 1)[1])))
            client.sendall(sent)
            return client

        yield made


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed a connection, after reading what it sent."""
    client.setblocking(False)
    try:
        while client.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def ask(url: str) -> httpx.Response:
    return httpx.post(f"{url}{CHAT}", json=BODY, timeout=LIMIT)


@pytest.mark.full
def test_idle_connections_make_room(make: MakeApp, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "trinity.server"),
        socket_server(make(), max_connections=8) as url,
        clients(url) as made,
    ):
        idle = [made(b"" if number % 2 else b"POST / HT") for number in range(40)]
        for _ in range(3):
            assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200
            assert ask(url).status_code == 200
        wait_for(lambda: sum(is_closed(one) for one in idle) >= len(idle) - 9)
    assert len(caplog.records) == 1
    assert "more than 8 connections" in caplog.text


@pytest.mark.skipif(sys.platform != "linux", reason="every 127.x.x.x is an address of its own")
@pytest.mark.parametrize("seconds", [0, 0.02])
def test_the_client_with_most_connections_makes_room(
    make: MakeApp, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Another client's connection stays open, although it was idle longer.

    It does also if connections take ``seconds`` to begin.
    """
    connect = accepting.Accepting._connect

    async def slow(self: Any, client: socket.socket) -> None:
        await asyncio.sleep(seconds)
        await connect(self, client)

    monkeypatch.setattr(accepting.Accepting, "_connect", slow)
    with socket_server(make(), max_connections=8) as url, clients(url) as made:
        kept = made(b"", "127.0.0.2")
        time.sleep(2 * seconds)  # until it has begun
        many = [made(b"") for _ in range(40)]
        wait_for(lambda: sum(is_closed(one) for one in many) >= len(many) - 9)
        assert not is_closed(kept)


def test_a_crowd_makes_room_before_its_connections_begin() -> None:
    """Only silent ones of the client with the most, the oldest first, as many as are spare."""
    state = connections.Connections(32)
    with ExitStack() as stack:

        def accepted(network: str, age: float, sent: bytes = b"") -> accepting.Accepted:
            client, server = map(stack.enter_context, socket.socketpair())
            server.setblocking(False)
            client.sendall(sent)
            made = accepting.Accepted(server, network)
            made.since -= age
            state.accepted.add(made)
            return made

        other = accepted("other", 9.0)
        asks = accepted("many", 8.0, b"GET")
        old = [accepted("many", 1.0 + number) for number in range(3)]
        young = accepted("many", 0.0)
        young.since += LIMIT
        assert state.drop_accepted()
        assert [one.is_closed for one in old] == [False, True, True]
        assert state.drop_accepted()
        assert not state.drop_accepted()
        assert state.accepted == {other, asks, young}
        assert not any(one.is_closed for one in state.accepted)


@pytest.mark.full
def test_where_all_work_one_more_is_told(make: MakeApp, model: Model) -> None:
    with socket_server(make(), max_connections=8) as url, clients(url) as made:
        text = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":2}'
        post = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
        with nobody_gets_on(model):
            busy = [made(post % (CHAT.encode(), len(text), text)) for _ in range(8)]
            wait_for(lambda: model.scheduler_stats().waiting == 8)
            refused = ask(url)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "too_many_connections"
            assert refused.headers["Retry-After"] == "1"
            assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200
        for one in busy:
            assert one.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        for one in busy:
            one.close()
        wait_for(lambda: ask(url).status_code == 200)


def test_a_system_without_descriptors_is_asked_again(
    make: MakeApp, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures, accept = [0], asyncio.SelectorEventLoop.sock_accept

    async def failing(self: Any, listener: socket.socket) -> Any:
        if failures[0] < 5:
            failures[0] += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await accept(self, listener)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", failing)
    with caplog.at_level(logging.WARNING), socket_server(make()) as url:
        assert httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200
    assert failures == [5]
    assert [one.name for one in caplog.records if "accept connections" in one.getMessage()] == [
        "trinity.server"
    ]


@pytest.mark.skipif(not hasattr(select, "poll"), reason="needs select.poll")
def test_whether_a_connection_waits_to_be_accepted_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not accepting.is_waited_for(listener)
        with socket.create_connection(listener.getsockname()):
            assert accepting.is_waited_for(listener)
            listener.accept()[0].close()
            assert not accepting.is_waited_for(listener)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")
@pytest.mark.parametrize("ends", [False, True])
def test_a_client_that_has_left_is_known_before_its_request_is_read(ends: bool) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        client.sendall(GET)
        if ends:
            client.shutdown(socket.SHUT_WR)
        taken, _ = listener.accept()
        with taken:
            assert accepting.has_left(taken) is ends


def test_requests_of_a_server_that_ends_get_503_and_no_traceback(
    make: MakeApp, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    text = b'{"messages":[{"role":"user","content":"x"}],"max_tokens":2}'
    post = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
    with nobody_gets_on(model), ExitStack() as stack:
        with socket_server(make(), drain=0) as url:
            made = stack.enter_context(clients(url))
            waits = [made(post % (CHAT.encode(), len(text), text)) for _ in range(4)]
            half_sent = made(half(100))
            wait_for(lambda: model.scheduler_stats().waiting == 4)
        for one in (*waits, half_sent):
            assert one.recv(1 << 16).startswith(b"HTTP/1.1 503 ")
    assert "Traceback" not in caplog.text
    wait_for(lambda: model.scheduler_stats().waiting == 0)


@pytest.mark.parametrize(
    ("soft", "taken", "most"), [(128, 8, 60), (1024, 24, 500), (1 << 20, 24, 512), (20, 19, 8)]
)
def test_connections_are_fewer_than_descriptors(
    soft: int, taken: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, soft))
    monkeypatch.setattr(os, "listdir", lambda path: ["0"] * taken)
    assert connections.most_connections() == most


@pytest.fixture
def large() -> Starlette:
    """An application with a large response, whole and in chunks that it makes on demand."""

    async def whole(request: Request) -> Response:
        return PlainTextResponse("x" * LARGE)

    async def pieces(request: Request) -> Response:
        async def made() -> Any:
            for _ in range(LARGE >> 16):
                request.app.state.made += 1
                yield "x" * (1 << 16)

        return StreamingResponse(made())

    app = Starlette(routes=[Route("/", whole), Route("/pieces", pieces)])
    app.state.made = 0
    return app


@pytest.mark.full
def test_unread_answers_have_a_total(large: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_UNREAD", 2 * LARGE)
    with socket_server(large) as url, clients(url) as made:
        slow = [made(GET) for _ in range(8)]
        answer = httpx.get(url, timeout=LIMIT)
        assert len(answer.text) == LARGE
        for one in slow:
            one.settimeout(1)

        def given(client: socket.socket) -> int:
            count = 0
            try:
                while piece := client.recv(1 << 20):
                    count += len(piece)
            except OSError:
                pass
            return count

        assert sum(given(one) >= LARGE for one in slow) <= 2


def test_an_answer_in_pieces_waits_for_its_reader(large: Starlette) -> None:
    with socket_server(large) as url, clients(url) as made:
        client = made(GET.replace(b"/", b"/pieces", 1))
        assert client.recv(1)
        before = -1
        while before != large.state.made:
            before = large.state.made
            httpx.get(url, timeout=LIMIT)
        assert before < LARGE >> 16
        assert len(httpx.get(f"{url}/pieces", timeout=LIMIT).text) == LARGE


@pytest.mark.full
def test_who_does_not_read_is_given_up(large: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "STALL_SECONDS", 3.0)
    with socket_server(large) as url, clients(url) as made:
        stalled, reading = made(GET), made(GET)
        read = 0

        def is_reset() -> bool:
            """Whether the server gave up the stalled connection and dropped its response."""
            nonlocal read
            read += len(reading.recv(1 << 12))
            return stalled.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET

        wait_for(is_reset)
        while piece := reading.recv(1 << 20):
            read += len(piece)
            if read > LARGE:
                break
        assert read > LARGE


@pytest.mark.full
def test_the_rest_of_a_refused_body_ends(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REST_SECONDS", 0.1)
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with clients(url) as made:
        client = made(head)

        def ended() -> bool:
            try:
                client.sendall(b"1\r\nx\r\n")
            except OSError:
                return True
            return False

        assert client.recv(1 << 16).startswith(b"HTTP/1.1 404 ")
        wait_for(ended)


def half(size: int) -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    return head % (CHAT.encode(), 2 * size) + b" " * size


def test_half_bodies_have_a_total(make: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_BYTES", 0)
    app = make(max_body=1 << 20, max_audio=1 << 20)  # 2 MiB together
    with socket_server(app) as url, clients(url) as made:
        halves = []
        for _ in range(20):
            halves.append(made(half(500_000)))
            halves[-1].setblocking(False)
        # Where there are too many a new one takes the place of another, or is told to come again.
        wait_for(lambda: sum(answer(one)[:12] in (b"HTTP/1.1 408", b"HTTP/1.1 503")
                             for one in halves) >= 15)  # fmt: skip
        assert ask(url).status_code == 200
        full = httpx.post(f"{url}{CHAT}", content=b" " * 500_000, timeout=LIMIT)
        assert full.status_code == 400  # no JSON; there was room


def answer(client: socket.socket) -> bytes:
    """Return the received bytes without consuming them."""
    try:
        return client.recv(1 << 16, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


def test_bytes_that_come_after_its_refusal_give_a_body_no_more_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "STALL_SECONDS", 10 * LIMIT)
    monkeypatch.setattr(bodies, "LEAST_RATE", 1)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}

    async def test() -> None:
        found = bodies.Bodies(1)
        with found.counted() as body:
            async with body.coming(receive, in_memory=True) as received:
                await received()
                body.refuse()
                await received()
                await asyncio.sleep(LIMIT)

    with pytest.raises(ApiError, match="in time"):
        asyncio.run(test())


@pytest.mark.few(1)
@pytest.mark.parametrize("drip", [0, 1 << 14])
def test_a_body_comes_in_time_or_is_refused(
    drip: int, make: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client sends nothing, the other more than 4 KiB a second."""
    monkeypatch.setattr(bodies, "STALL_SECONDS", 1.0)
    monkeypatch.setattr(bodies, "LEAST_RATE", 1 << 12)

    async def test() -> None:
        found = bodies.Bodies(1)
        sent = 0

        async def receive() -> dict[str, object]:
            nonlocal sent
            await asyncio.sleep(0.05 if drip else LIMIT)
            sent += drip
            return {"type": "http.request", "body": b"x" * drip, "more_body": sent < 40 * drip}

        with found.counted() as body:
            async with body.coming(receive, in_memory=True) as received:
                while (await received())["more_body"]:
                    pass
            assert found.total == sent - bodies.FREE_BYTES
        assert found.total == 0

    if drip:
        asyncio.run(test())
    else:
        with pytest.raises(Exception, match="in time") as late:
            asyncio.run(test())
        assert late.value.status == 408  # type: ignore[attr-defined]
