"""Malicious requests end with an error or a closed connection."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from tests.server.asgi import strict
from tests.server.conftest import LIMIT, MakeApp, is_idle, socket_server, wait_for
from trinity.model import Model
from trinity.runtime import prompts
from trinity.server.endpoints import ENDPOINTS
from trinity.server.transport import connection as connections

CHAT = "/v1/chat/completions"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


def exchange(url: str, *sent: bytes, end: bool = False) -> bytes:
    """Send bytes and return the server's response, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), LIMIT) as connection:
        try:
            for piece in sent:
                connection.sendall(piece)
            if end:
                connection.shutdown(socket.SHUT_WR)
            return connection.recv(65536)
        except (BrokenPipeError, ConnectionResetError):
            return b""


def is_alive(url: str) -> bool:
    return httpx.get(f"{url}/health", timeout=LIMIT).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        GET + b"X: " + b"y" * 2_000_000,
        GET + b"".join(b"X%d: y\r\n" % i for i in range(20_000)) + b"\r\n",
        b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/models/\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n",
        GET + b"X: a\x00b\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}    ",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        POST + b"Content-Length: -5\r\n\r\n{}",
        POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
        POST + b"Transfer-Encoding: gzip\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    ],
    ids=[
        "header of 2 MB", "20,000 headers", "path of 1 MB", "path no ASCII", "two Hosts",
        "NUL in a header", "TLS", "CONNECT", "OPTIONS *", "HTTP/2", "two lengths",
        "length and chunks", "length below 0", "huge length", "compressed transfer", "no chunk",
    ],
)  # fmt: skip
def test_what_is_no_good_http_is_refused(url: str, sent: bytes) -> None:
    assert re.match(rb"HTTP/1\.1 4\d\d |$", exchange(url, sent))
    assert is_alive(url)


@pytest.mark.parametrize(
    "sent", [b"POST /v1/ch", POST + b"Content-Le", POST + b"Content-Length: 100\r\n\r\n{"]
)
def test_half_a_request_whose_client_goes_is_closed(url: str, model: Model, sent: bytes) -> None:
    assert exchange(url, sent, end=True) == b""
    assert is_idle(model)
    assert is_alive(url)


@pytest.mark.few(1)
@pytest.mark.parametrize("sent", [b"", b"POST /v1/ch", GET + b"X: y"])
def test_headers_that_never_end_end_the_connection(
    url: str, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    assert exchange(url, sent) == b""
    whole = GET + b"\r\n"  # after a whole request as well
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), LIMIT) as connection:
        connection.sendall(whole)
        found = b""
        while not found.endswith(b"}"):
            found += connection.recv(65536)
        assert found.startswith(b"HTTP/1.1 200 ")
        connection.sendall(sent or b"G")
        assert connection.recv(65536) == b""
    assert is_alive(url)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "sent",
    [
        POST + b"Content-Length: 100\r\n\r\n{",
        POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n",
        POST + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
    ],
)
def test_a_body_that_never_ends_is_refused_in_time(make: MakeApp, sent: bytes) -> None:
    with socket_server(make(request_seconds=0.3)) as url:
        answer = exchange(url, sent)
        if b" 100 " in answer:
            answer = exchange(url, sent.replace(b"Expect", b"X-Expect"))
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_body_that_is_broken_after_the_answer_closes(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), LIMIT) as connection:
        connection.sendall(head)
        assert connection.recv(65536).startswith(b"HTTP/1.1 404 ")
        connection.sendall(b"zz\r\n{}\r\n")
        while connection.recv(65536):
            pass
    assert is_alive(url)
    assert not caplog.records


def test_requests_in_one_go_are_answered_in_turn(url: str) -> None:
    bad = POST + b"Content-Length: 2\r\n\r\n{}"
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), LIMIT) as connection:
        connection.sendall((GET + b"\r\n" + bad) * 5 + b"\x00 no HTTP \r\n\r\n")
        found = b""
        while piece := connection.recv(65536):
            found += piece
    statuses = re.findall(rb"HTTP/1\.1 (\d+)", found)
    assert statuses[:10] == [b"200", b"400"] * 5
    assert statuses[10:] in ([], [b"400"])
    assert is_alive(url)


def chat(content: bytes = b'"x"', more: bytes = b"") -> bytes:
    return b'{"messages":[{"role":"user","content":%b}],"max_tokens":1%b}' % (content, more)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", None), (b"1", None), (b"[" * 60_000, None), (chat() + b"x", None),
        (chat(b'"\xff\xfe"'), None), (chat(b'"\xc0\x80"'), None),
        (chat(b'"\xed\xa0\x80"'), None), (chat(b'"a\x00b"'), None),
        (chat(b"[" * 60_000 + b"]" * 60_000), None),
        (chat(b"[{\"text\":\"x\",\"type\":[]}]"), "messages[0].content[0].type"),
        (chat(b"[{\"text\":[]}]"), "messages[0].content[0].text"),
        (chat(more=b',"tools":[{"type":[]}],"tool_choice":{"type":[]}'), "tool_choice"),
        (chat(more=b',"tools":[{"type":"custom","custom":[]}]'), "tools[0].name"),
        (chat(more=b',"tool_choice":{"type":"allowed_tools","allowed_tools":[]}'), "tool_choice"),
        (chat(more=b',"response_format":{"type":[]}'), "response_format.type"),
        (chat(more=b',"response_format":{"type":"json_schema","json_schema":1}'),
         "response_format.json_schema"),
        (chat(more=b',"functions":[{}]'), "functions[0].name"),
        (chat(more=b',"temperature":NaN'), None), (chat(more=b',"top_p":-Infinity'), None),
        (chat(more=b',"temperature":1e999'), "temperature"),
        (chat(more=b',"temperature":1e308'), "temperature"),
        (chat(more=b',"temperature":1,"temperature":"x"'), "temperature"),
        (chat(more=b',"max_tokens":-2'), "max_tokens"),
        (chat(more=b',"max_tokens":' + b"9" * 100_000), "max_tokens"),
        (chat(more=b',"seed":18446744073709551616'), "seed"),
        (chat(more=b',"n":0'), "n"), (chat(more=b',"n":1000000000'), "n"),
        (chat(more=b',"stop":[' + b",".join([b'"a"'] * 100_000) + b"]"), "stop"),
        (chat(more=b',"logit_bias":{"-1":1}'), "logit_bias"),
        (chat(more=b',"logit_bias":{"99999999":1}'), "logit_bias"),
        (chat(more=b',"grammar":"root ::= root"'), "grammar"),
        (chat(more=b',"json_schema":{"$ref":"#"}'), "json_schema"),
        (chat(more=b',"json_schema":{"$ref":"http://127.0.0.1:1/x"}'), "json_schema"),
        (chat(more=b',"json_schema":' + b'{"items":' * 300 + b"{}" + b"}" * 300), "json_schema"),
        (chat(more=b',"chat_template_kwargs":{"messages":"x"}'), None),
        (chat(b'"' + b"a " * 100_000 + b'"'), None),
    ],
)  # fmt: skip
def test_a_hostile_body_is_refused(client: TestClient, body: bytes, named: str | None) -> None:
    response = client.post(CHAT, content=body)
    assert response.status_code == 400, response.text[:500]
    error = strict(response.text)["error"]
    assert error["message"].strip() == error["message"] != ""
    if named is not None:
        assert error["param"] == named
    assert client.get("/health").status_code == 200


def test_large_tools_are_refused_by_their_name(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context could hold them; otherwise the length is the reason."""
    schema = {"type": "object", "properties": {"a": {"enum": ["x" * 60_000]}}}
    tools = [
        {"type": "function", "function": {"name": f"f{number}", "parameters": schema}}
        for number in range(20)
    ]
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "tools": tools,
        "tool_choice": "required",
    }
    refused = client.post(CHAT, json=body)
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    monkeypatch.setattr(prompts, "LONG_TEXT", 1 << 30)
    response = client.post(CHAT, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools"


def test_content_types_do_not_matter(client: TestClient) -> None:
    """curl sends JSON as a form; the check of Origin keeps web pages out."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ";;;charset=utf-99"):
        response = client.post(CHAT, content=chat(), headers={"Content-Type": kind})
        assert response.status_code == 200


@pytest.mark.full
def test_memory_is_flat_over_large_refused_bodies(url: str, model: Model) -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("needs /proc")
    body = chat(more=b',"temperature":"' + b"m" * 3_500_000 + b'"')

    def resident() -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1]) << 10

    def ask(times: int) -> None:
        for _ in range(times):
            assert httpx.post(f"{url}{CHAT}", content=body, timeout=LIMIT).status_code == 400

    ask(3)
    before = resident()
    ask(20)
    assert resident() - before < 40 << 20  # 70 MB were sent
    wait_for(lambda: is_idle(model))


def test_the_document_says_what_streams_are(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for endpoint in ENDPOINTS:
        if endpoint.event is not None:
            answers = paths[endpoint.path][endpoint.method.lower()]["responses"]
            item = answers["200"]["content"][endpoint.stream_type]["itemSchema"]
            if endpoint.done:
                last, item = item["anyOf"]
                assert last["properties"]["data"]["const"] == "[DONE]"
            if endpoint.stream_type == "text/event-stream":
                item = item["properties"]["data"]["contentSchema"]
            data, error, *chosen = item["anyOf"]
            assert bool(chosen) == endpoint.chosen
            assert "$ref" in data or "anyOf" in data
            assert error["$ref"].endswith(endpoint.family.schema.__name__)
