"""Requests in unusual but valid forms, as client programs send them, get the same response."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.server.conftest import MakeApp, socket_server
from tests.server.transport.test_wire import asked
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions
from trinity.server.transport.paths import UNUSUAL, usual_path

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Who was he?"}], "max_tokens": 4, "seed": 1,
}  # fmt: skip
TEXT = json.dumps(HELLO).encode()
BOM = b"\xef\xbb\xbf"


@pytest.fixture(scope="module")
def usual(client: TestClient) -> str:
    """The response to HELLO."""
    return content(client.post(CHAT, json=HELLO))


def content(response: Any) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models/", "/v1/models"),
        ("//v1//models//", "/v1/models"),
        ("/v1/v1/models", "/v1/models"),
        ("/api/v1/models", "/v1/models"),
        ("/openai/v1/models", "/v1/models"),
        ("/v1/api/tags", "/api/tags"),
        ("/api/api/tags", "/api/tags"),
        ("http://localhost:8080/v1/models", "/v1/models"),
        ("HTTPS://localhost/v1/models/", "/v1/models"),
        ("http://localhost", "/"),
        ("/", "/"),
        ("", "/"),
        ("//", "/"),
        ("/v1", "/v1"),
        ("/v1/v1", "/v1"),
        ("/v1/models/v1/v1/a", "/v1/models/v1/v1/a"),  # only the beginning is a base URL
        ("/v1/apiary", "/v1/apiary"),
        ("/api/version", "/api/version"),
    ],
)
def test_usual_path(path: str, expected: str) -> None:
    assert usual_path(path) == expected
    assert path == expected or not path or UNUSUAL.search(path)


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions/", "//v1/chat/completions", "/v1/v1/chat/completions",
             "/api/v1/chat/completions", "/chat/completions/"],
)  # fmt: skip
def test_paths_of_base_urls(client: TestClient, usual: str, path: str) -> None:
    assert content(client.post(f"http://localhost{path}", json=HELLO)) == usual


def test_unknown_paths_are_named_in_their_usual_form(client: TestClient) -> None:
    response = client.get("/v1/v1/nothing/")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_path")


def test_paths_below_a_mount(make: MakeApp, model: Model) -> None:
    app = Starlette(routes=[Mount("/v1/own", app=make())])
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/v1/own/v1/models").status_code == 200
        assert client.get("/v1/own/v1/models/").status_code == 200
        assert client.get("/v1/own/v1//models").status_code == 200


def test_a_key_is_needed_whatever_the_form_of_the_path(make: MakeApp) -> None:
    with TestClient(make(api_key=("secret-key",)), base_url="http://localhost") as client:
        for path in ("/v1/models/", "/health/v1/models", "/v1/v1/models", "/api/v1/models"):
            assert client.get(path).status_code == 401, path
        assert client.get("/health/").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        BOM + TEXT,  # .NET and PowerShell
        b"\r\n  " + TEXT + b"\r\n",
        TEXT[:-1] + b',"max_tokens":4}',
        TEXT.replace(b'"max_tokens": 4', b'"max_tokens": 4.0'),
        TEXT.replace(b'"max_tokens": 4', b'"max_tokens": "4"'),
        TEXT.replace(b'"max_tokens": 4', b'"max_tokens": 4e0'),
    ],
)
def test_forms_of_json(client: TestClient, usual: str, body: bytes) -> None:
    assert content(client.post(CHAT, content=body)) == usual


@pytest.mark.parametrize(
    ("escaped", "expected"),
    [
        (rb"a\ud83d", "a\ufffd"),
        (rb"\ude00a", "\ufffda"),
        (rb"\uD83D\uD83D\uDE00", "\ufffd\U0001f600"),
        (rb"\\\ud83d\n\u00e9", "\\\ufffd\n\u00e9"),
        (rb"\\ud83d\udc00", "\\ud83d\ufffd"),  # the first one is a backslash and letters
        (rb"\ud83d\u0041", "\ufffdA"),
    ],
)
def test_halves_of_surrogate_pairs(client: TestClient, escaped: bytes, expected: str) -> None:
    """JavaScript writes them for text that is cut within an emoji; Go also reads U+FFFD."""
    tokens = client.post("/tokenize", json={"content": expected}).json()
    for more in (b"", b', "unknown": 1'):
        found = client.post("/tokenize", content=b'{"content":"%b"%b}' % (escaped, more))
        assert found.status_code == 200, found.text
        assert found.json() == tokens


@pytest.mark.parametrize(
    "body", [rb'{"prompt": "\ud83d', rb'{"prompt": "\ud83d"} x', b"{\\", rb'{"prompt": "\ud83"}']
)
def test_damaged_json_stays_an_error(client: TestClient, body: bytes) -> None:
    found = client.post("/v1/completions", content=body)
    assert (found.status_code, found.json()["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_has_no_effect_where_none_is_read(client: TestClient, method: str) -> None:
    for path in ("/v1/models", "/api/tags", "/health"):
        assert client.request(method, path, json={"a": 1}).status_code == 200


@pytest.mark.parametrize("name", ["", "identity"])
def test_bodies_without_compression(client: TestClient, usual: str, name: str) -> None:
    headers = {"Content-Encoding": name}
    assert content(client.post(CHAT, content=TEXT, headers=headers)) == usual


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/vnd.api+json",
             'application/json;charset="UTF-8"', "application/json; charset=ISO-8859-1"],
)  # fmt: skip
def test_content_types(client: TestClient, usual: str, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    assert content(client.post(CHAT, content=TEXT, headers=headers)) == usual


@pytest.fixture(scope="module")
def url(make: MakeApp) -> Iterator[str]:
    with socket_server(make()) as url:
        yield url


HEAD = b"Connection: close\r\nContent-Length: %d\r\n" % len(TEXT)


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /v1/chat/completions HTTP/1.0\r\n" + HEAD,
        b"POST http://localhost/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + HEAD,
        b"POST /v1/chat/completions HTTP/1.1\nHost: LOCALHOST.\n" + HEAD,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: nothing\r\n" + HEAD,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-Title: Caf\xe9\r\n" + HEAD,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\n" + HEAD,
    ],
)
def test_forms_of_http(url: str, usual: str, sent: bytes) -> None:
    head, _, body = asked(url, sent + b"\r\n" + TEXT).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    assert json.loads(body)["choices"][0]["message"]["content"] == usual


def test_a_client_that_waits_for_100_gets_it(url: str, usual: str) -> None:
    sent = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    found = asked(url, sent + HEAD + b"\r\n" + TEXT)
    assert found.startswith(b"HTTP/1.1 100 ")
    body = found.partition(b"\r\n\r\n")[2].partition(b"\r\n\r\n")[2]
    assert json.loads(body)["choices"][0]["message"]["content"] == usual


@pytest.mark.parametrize("logprobs", [True, 1])
def test_logprobs_of_completions_as_of_chats(client: TestClient, logprobs: object) -> None:
    body = {"prompt": "Who", "max_tokens": 2, "temperature": 0}
    found = client.post("/v1/completions", json={**body, "logprobs": logprobs}).json()["choices"][0]
    assert [len(one) for one in found["logprobs"]["top_logprobs"]] == [1, 1]
    off = client.post("/v1/completions", json={**body, "logprobs": False}).json()["choices"][0]
    assert (off["text"], off["logprobs"]) == (found["text"], None)


@pytest.fixture(scope="module")
def two(model: Model) -> Iterator[TestClient]:
    """A server with two models, so that names matter."""
    served = [Served(name, "x.gguf", lambda: model, model=model) for name in ("demo", "other")]
    app = make_app(Models(served), ServerOptions(preload=False))
    client = TestClient(app, base_url="http://localhost")  # without the lifespan, which unloads
    yield client
    client.close()


@pytest.mark.parametrize("name", ["", None])
def test_an_empty_name_means_the_first_model(two: TestClient, name: str | None) -> None:
    found = two.post(CHAT, json={**HELLO, "model": name})
    assert (found.status_code, found.json().get("model")) == (200, "demo")
    assert two.post(CHAT, json={**HELLO, "model": "nothing"}).status_code == 404


@pytest.mark.parametrize(
    "name", ["other", "library/other", "registry.ollama.ai/library/other:latest", "Other:latest"]
)
def test_names_with_ollamas_registry(two: TestClient, name: str) -> None:
    assert two.post("/api/show", json={"model": name}).status_code == 200
    assert two.post("/api/show", json={"model": f"somebody/{name}"}).status_code == 404


def test_ollamas_developer_and_top_p(client: TestClient) -> None:
    def answer(role: str, top_p: float) -> str:
        messages = [{"role": role, "content": "Be brief."}, *HELLO["messages"]]
        options = {"num_predict": 4, "seed": 1, "top_p": top_p}
        body = {"model": "demo", "messages": messages, "stream": False, "options": options}
        found = client.post("/api/chat", json=body)
        assert found.status_code == 200, found.text
        return str(found.json()["message"]["content"])

    assert answer("developer", 1.5) == answer("system", 1)


def test_an_empty_text_among_ollamas(client: TestClient, model: Model) -> None:
    """As in Ollama, its vector is that of the special tokens around a text."""
    found = client.post("/api/embed", json={"model": "demo", "input": ["a", ""]})
    assert found.status_code == 200, found.text
    expected = model.embed(["a", ""])
    assert np.abs(np.array(found.json()["embeddings"]) - expected).max() < 1e-6


@pytest.mark.few(1)
@pytest.mark.parametrize("arguments", [{}, [], None, "", "{}"])
def test_ollamas_calls_without_arguments(client: TestClient, arguments: object) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    messages = [
        *HELLO["messages"], {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3"},
    ]  # fmt: skip
    body = {"model": "demo", "messages": messages, "stream": False, "options": []}
    assert client.post("/api/chat", json=body).status_code == 200


def test_empty_objects_of_php(client: TestClient, usual: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": []}}
    body = {**HELLO, "metadata": [], "stream_options": [], "logit_bias": [], "response_format": []}
    assert content(client.post(CHAT, json=body)) == usual
    assert client.post(CHAT, json={**body, "tools": [tool]}).status_code == 200


NO_EFFECT: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, HELLO, "user"),
    (CHAT, HELLO, "metadata"),
    (CHAT, HELLO, "service_tier"),
    (CHAT, HELLO, "store"),
    (CHAT, HELLO, "n_discard"),
    (CHAT, HELLO, "backend_sampling"),
    (CHAT, HELLO, "prompt_cache_key"),
    ("/v1/completions", {"prompt": "Who", "max_tokens": 1}, "user"),
    ("/v1/completions", {"prompt": "Who", "max_tokens": 1}, "best_of"),
    ("/v1/embeddings", {"input": "Who"}, "user"),
    ("/v1/embeddings", {"input": "Who"}, "input_type"),
    ("/v1/responses", {"input": "Who", "max_output_tokens": 1}, "user"),
    ("/v1/responses", {"input": "Who", "max_output_tokens": 1}, "metadata"),
    ("/v1/responses", {"input": "Who", "max_output_tokens": 1}, "safety_identifier"),
    ("/v1/responses", {"input": "Who", "max_output_tokens": 1}, "prompt_cache_key"),
    ("/v1/responses", {"input": "Who", "max_output_tokens": 1}, "truncation"),
    ("/v1/messages", HELLO, "metadata"),
    ("/v1/messages", HELLO, "service_tier"),
    ("/v1/messages", HELLO, "cache_control"),
    ("/v1/messages", HELLO, "container"),
    ("/api/generate", {"model": "demo", "prompt": "Who", "stream": False}, "width"),
]


@pytest.mark.parametrize(("path", "body", "name"), NO_EFFECT)
@pytest.mark.parametrize("value", [7, "x", True, [1], {"a": {"b": 1}}, -1.5, None])
def test_fields_without_effect_may_have_any_value(
    client: TestClient, path: str, body: dict[str, Any], name: str, value: object
) -> None:
    options = {"options": {"num_predict": 1}} if path.startswith("/api") else {}
    found = client.post(path, json={**body, **options, name: value})
    assert found.status_code == 200, found.text


def test_blocks_of_anthropics_own_tools_are_ignored(client: TestClient) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [
            {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e"}]},
        {"type": "mcp_tool_use", "id": "m", "name": "f", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": False, "content": []},
    ]  # fmt: skip
    text = {"type": "text", "text": "He was a prince."}

    def answer(content: list[dict[str, Any]]) -> Any:
        messages = [
            *HELLO["messages"], {"role": "assistant", "content": content},
            {"role": "user", "content": "And then?"},
        ]  # fmt: skip
        body = {"model": "demo", "messages": messages, "max_tokens": 4, "temperature": 0}
        return client.post("/v1/messages", json=body)

    found = answer([*blocks, text])
    assert found.status_code == 200, found.text
    names = [f"messages[1].content[{number}]" for number in range(len(blocks))]
    assert found.headers["x-trinity-ignored"] == ", ".join(names)
    assert found.json()["content"] == answer([text]).json()["content"]
    asked = [{"role": "user", "content": blocks[:1]}]
    refused = client.post("/v1/messages", json={"messages": asked, "max_tokens": 4})
    assert refused.status_code == 400


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/chat/completion", "did you mean /v1/chat/completions?"),
        ("/V1/Embedding", "did you mean /v1/embeddings?"),
        ("/v1", "there is no /v1; GET /openapi.json lists all paths"),
        ("/v1/nothing", "GET /openapi.json lists all paths"),
    ],
)
def test_a_wrong_path_gets_advice(client: TestClient, path: str, said: str) -> None:
    response = client.post(path, json=HELLO)
    assert response.status_code == 404
    assert said in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        (b"", None, "the body is empty; send a JSON object"),
        (b"{}", "messages", "messages is missing"),
        (b'{"messages": [{"content": "a"}]}', "messages[0].role", "messages[0].role is missing"),
        (
            b'{"messages": [{"role": "bot", "content": "a"}]}',
            "messages[0].role",
            "messages[0].role: Invalid enum value 'bot'; expected a role such as user or assistant",
        ),
        (
            b'{"messages": [{"role": "user"}]}',
            "messages[0].content",
            "messages[0].content is missing: give a text, or a list of parts",
        ),
        (
            b'{"messages": [{"role": "user", "content": "a"}], '
            b'"response_format": {"type": "json_schema"}}',
            "response_format.json_schema",
            "response_format.json_schema is missing: give an object with the schema",
        ),
    ],
)
def test_what_is_missing_is_named(
    client: TestClient, body: bytes, param: str | None, said: str
) -> None:
    response = client.post("/v1/chat/completions", content=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["message"]) == (400, param, said)


def test_a_system_message_without_content_is_empty(client: TestClient) -> None:
    def prompt(**message: object) -> str:
        body = {"messages": [{"role": "system", **message}, *HELLO["messages"]]}
        response = client.post("/apply-template", json=body)
        assert response.status_code == 200, response.text
        return str(response.json()["prompt"])

    assert prompt() == prompt(content=None) == prompt(content="")


def test_a_wrong_method_names_the_right_one(client: TestClient) -> None:
    response = client.get("/v1/chat/completions")
    assert response.status_code == 405
    assert response.json()["error"]["message"].endswith("does not allow GET; it allows POST")
