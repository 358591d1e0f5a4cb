"""Connections: many, slow, half sent, unread, aborted."""

from __future__ import annotations

import itertools
import time

from tests.soak.attacks.target import CHAT, Target, attack

LONG = {
    "messages": [{"role": "user", "content": "x"}],
    "max_tokens": 400,
    "ignore_eos": True,
    "stream": True,
}


@attack()
def idle_connections(target: Target) -> None:
    """1,000 connections that never say anything."""
    target.once(lambda: target.send(b""), 1000)


@attack("few_files")
def more_connections_than_files(target: Target) -> None:
    """200 idle connections to a server that may have 128 files open."""
    target.once(lambda: target.send(b""), 200)


@attack()
def half_bodies(target: Target) -> None:
    """100 bodies of 4 MB whose last byte never comes."""
    whole = target.request(CHAT, b'"' + b"x" * ((4 << 20) - 2) + b'"')
    target.once(lambda: target.send(whole[:-1]), 100)


@attack()
def slow_readers(target: Target) -> None:
    """Clients that ask for large answers and read nothing."""
    body = {"prompt": "x", "n_predict": 1, "response_fields": ["prompt"]}
    many = target.request("/completion", body) * 500
    target.once(lambda: target.send(many, buffer=2048), 40)


@attack()
def one_byte_chunks(target: Target) -> None:
    """Bodies in chunks of one byte."""
    data = b"1\r\nx\r\n" * 400_000
    head = target.head("POST", CHAT, {"Transfer-Encoding": "chunked"})
    target.again(lambda: target.exchange(head + data + b"0\r\n\r\n"), 4)


@attack()
def pipelined_requests(target: Target) -> None:
    """2,000 requests at once on each connection."""
    many = target.request("/v1/models") * 2000
    target.once(lambda: target.send(many), 8)


@attack()
def header_floods(target: Target) -> None:
    """Requests with 60 KB of short headers."""
    headers = {f"X{i}": "y" for i in range(6000)}
    target.again(lambda: target.exchange(target.head("GET", "/v1/models", headers)), 8)


@attack()
def aborted_streams(target: Target) -> None:
    """Streams whose clients leave at once."""
    data = target.request(CHAT, LONG)

    def leave() -> None:
        client = target.connect()
        target.write(client, data)
        time.sleep(0.01)
        client.close()

    target.again(leave, 16)


@attack()
def aborted_streams_with_more_bytes(target: Target) -> None:
    """Streams whose clients send a further byte and leave."""
    data = target.request(CHAT, LONG)

    def leave() -> None:
        client = target.connect()
        target.write(client, data + b"G")
        time.sleep(0.01)
        client.close()

    target.again(leave, 16)


@attack()
def upgrades(target: Target) -> None:
    """Requests to upgrade to a WebSocket."""
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    target.again(lambda: target.exchange(target.head("GET", "/v1/models", upgrade)), 8)


@attack()
def head_and_options(target: Target) -> None:
    """HEAD and OPTIONS on a connection that is kept, as fast as possible."""
    many = (target.head("HEAD", "/v1/models", {}) + target.head("OPTIONS", CHAT, {})) * 50

    def flood() -> None:
        with target.connect() as client:
            while target.going():
                target.write(client, many)
                client.recv(1 << 20)

    target.again(flood, 4)


@attack()
def no_http(target: Target) -> None:
    """Bytes that are no HTTP, over new connections."""
    target.again(lambda: target.exchange(b"\x16\x03\x01\x02\x00\x01" * 1000), 8)


@attack()
def dripping_bodies(target: Target) -> None:
    """Bodies of 4 MB of which 8 KB come at a time."""
    head = target.head("POST", CHAT, {"Content-Length": str(4 << 20)})

    def drip() -> None:
        client = target.send(head)
        while target.going():
            target.write(client, b" " * 8192)
            time.sleep(0.01)

    target.again(drip, 16)


@attack()
def unread_streams(target: Target) -> None:
    """Streams with many log-probabilities that nobody reads."""
    data = target.request(CHAT, {**LONG, "n": 4, "logprobs": True, "top_logprobs": 20})
    target.once(lambda: target.send(data, buffer=2048), 8)


@attack()
def bodies_of_nothing(target: Target) -> None:
    """Bodies that go on when their requests have been refused."""
    head = target.head("POST", "/v1/nothing", {"Transfer-Encoding": "chunked"})
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"

    def go_on() -> None:
        client = target.send(head)
        while target.going():
            target.write(client, piece)

    target.again(go_on, 8)


@attack()
def dripping_heads(target: Target) -> None:
    """Heads of requests of which a line comes at a time, on 64 connections."""
    head = target.head("GET", "/v1/models", {})[:-2]

    def drip() -> None:
        client = target.send(head)
        while target.going():
            target.write(client, b"a: b\r\n")
            time.sleep(0.01)

    target.again(drip, 64)


@attack()
def extensions_and_trailers(target: Target) -> None:
    """Chunks with extensions of 8 KB and trailers of 60 KB."""
    head = target.head("POST", CHAT, {"Transfer-Encoding": "chunked"})
    chunk = b"1;" + b"x=y;" * 2000 + b"\r\n \r\n"
    trailers = b"".join(b"X%d: y\r\n" % number for number in range(6000))
    data = head + chunk * 400 + b"0\r\n" + trailers + b"\r\n"
    target.again(lambda: target.exchange(data), 8)


@attack()
def half_a_request_line(target: Target) -> None:
    """400 connections that got an answer, and then send half of the next request's first line."""
    first = target.request("/health") + b"GET /v1/mod"

    def ask() -> None:
        target.send(first).recv(1 << 12)

    target.once(ask, 400)


@attack()
def bodies_that_wait_for_a_continue(target: Target) -> None:
    """Requests with "Expect: 100-continue" whose body never comes, over new connections."""
    head = target.head("POST", CHAT, {"Content-Length": "1000", "Expect": "100-continue"})

    def ask() -> None:
        client = target.connect()
        target.write(client, head)
        client.recv(1 << 12)
        client.close()

    target.again(ask, 16)


@attack()
def unread_streams_of_each_api(target: Target) -> None:
    """Streams of four APIs, whose clients read a byte every 10 ms."""
    long = {"stream": True, "model": "tiny"}
    talk = {**long, "messages": LONG["messages"]}
    many = {"num_predict": 400}
    requests = itertools.cycle((
        target.request(CHAT, {**talk, "max_tokens": 400, "ignore_eos": True}),
        target.request("/v1/messages", {**talk, "max_tokens": 400}),
        target.request("/v1/responses", {**long, "input": "x", "max_output_tokens": 400}),
        target.request("/api/generate", {**long, "prompt": "x", "options": many}),
    ))  # fmt: skip

    def read() -> None:
        with target.connect(buffer=2048) as client:
            target.write(client, next(requests))
            while target.going() and client.recv(1):
                time.sleep(0.01)

    target.again(read, 32)


@attack()
def streams_of_many_choices(target: Target) -> None:
    """Streams with 64 choices each, whose events come together."""
    body = {**LONG, "n": 64, "stream_options": {"include_usage": True}}
    target.again(lambda: target.ask(CHAT, body), 4)


@attack()
def questions_after_health(target: Target) -> None:
    """/health over new connections, by 32 clients."""
    target.again(lambda: target.ask("/health", headers={"Connection": "close"}), 32)


@attack()
def short_streams(target: Target) -> None:
    """Streams of one token over new connections, by 32 clients."""
    target.again(lambda: target.ask(CHAT, {**LONG, "max_tokens": 1}), 32)
