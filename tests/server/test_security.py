"""API keys, hosts, origins and limits."""

from __future__ import annotations

import asyncio
import json
from contextvars import copy_context
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.server.asgi import strict
from tests.server.conftest import MakeApp
from trinity.errors import InputError
from trinity.server.caller import Keys, name_of
from trinity.server.errors import ApiError
from trinity.server.security import Guard, host_name
from trinity.server.setting_values import read_keys
from trinity.server.settings import ServerOptions
from trinity.server.transport.loop_turns import CLIENT

HELLO = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
KEYS = ["first-key-of-all", "second-key-of-all"]


@pytest.fixture(scope="module")
def guarded(make: MakeApp, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f"{KEYS[1]}\n\n")
    app = make(api_key=[KEYS[0]], api_key_file=file, allowed_host=["models.example"],
               allowed_origin=["https://app.example"], max_messages=3, max_body=1000)  # fmt: skip
    return TestClient(app, base_url="http://localhost")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": f"Bearer {KEYS[0]}"}, 200),
        ({"Authorization": f"bearer {KEYS[1]}"}, 200),
        ({"X-Api-Key": KEYS[1]}, 200),
        ({"Authorization": f"Bearer {KEYS[0][:-1]}"}, 401),
        ({"Authorization": f"Bearer {KEYS[0]}x"}, 401),
        ({"Authorization": f"Basic {KEYS[0]}"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"X-Api-Key": ""}, 401),
        ({"X-Api-Key": "\u00e9" * 20}, 401),
    ],
)
def test_a_key_is_needed(guarded: TestClient, headers: Any, status: int) -> None:
    sent = {name: value.encode("latin-1") for name, value in headers.items()}
    for path in ("/v1/models", "/metrics", "/openapi.json", "/nowhere"):
        expected = 404 if (path, status) == ("/nowhere", 200) else status
        assert guarded.get(path, headers=sent).status_code == expected
    assert guarded.post("/v1/chat/completions", json=HELLO, headers=sent).status_code == status
    assert guarded.get("/health", headers=sent).status_code == 200


def test_refusal_has_openais_form(guarded: TestClient) -> None:
    response = guarded.get("/v1/models")
    assert response.headers["www-authenticate"] == "Bearer"
    assert strict(response.text)["error"]["type"] == "authentication_error"
    assert strict(response.text)["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("localhost:8080", 200), ("127.0.0.1:9", 200), ("[::1]:80", 200),
        ("LOCALHOST", 200), ("models.example:80", 200), ("evil.example", 403),
        ("localhost.evil.example", 403), ("evil.example:localhost", 403), ("", 403),
        ("192.168.1.5", 403), ("evil.example#localhost", 403), ("[localhost", 200),
    ],
)  # fmt: skip
def test_requirement_20_a_foreign_host_is_refused(
    guarded: TestClient, host: str, status: int
) -> None:
    headers = {"Host": host, "X-Api-Key": KEYS[0]}
    assert guarded.get("/v1/models", headers=headers).status_code == status
    assert guarded.get("/health", headers=headers).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("https://app.example", 200), ("http://localhost:3000", 200), ("http://127.0.0.1", 200),
        ("http://localhost", 200), ("https://evil.example", 403), ("null", 403),
        ("http://app.example", 403), ("http://localhost.evil.example", 403),
        ("http://[::1", 403), ("app://obsidian.md", 200), ("file://", 200),
        ("tauri://localhost", 200), ("vscode-webview://1a2b", 200), ("TAURI://localhost", 200),
        ("vscode-file://vscode-app", 200), ("app:", 403), ("app", 403), ("app.example", 403),
        ("https://app://x", 403), ("https://tauri", 403), ("app:evil", 403),
        ("chrome-extension://abc", 403),
    ],
)  # fmt: skip
def test_requirement_20_a_foreign_origin_is_refused(
    guarded: TestClient, origin: str, status: int
) -> None:
    headers = {"Origin": origin, "X-Api-Key": KEYS[0]}
    response = guarded.get("/v1/models", headers=headers)
    assert response.status_code == status
    allowed = origin if status == 200 else None
    assert response.headers.get("access-control-allow-origin") == allowed
    assert "access-control-allow-credentials" not in response.headers
    asked = guarded.options(
        "/v1/models", headers={"Origin": origin, "Access-Control-Request-Method": "GET"}
    )
    assert asked.status_code == 200
    assert asked.headers.get("access-control-allow-origin") == allowed
    assert asked.headers.get("access-control-allow-origin") == allowed


def test_every_address_is_let_in_where_the_server_listens_on_all(make: MakeApp) -> None:
    client = TestClient(make(host="0.0.0.0"), base_url="http://localhost")
    assert client.get("/health", headers={"Host": "192.168.1.5:80"}).status_code == 200
    assert client.get("/health", headers={"Host": "[fe80::1]:80"}).status_code == 200
    assert client.get("/health", headers={"Host": "evil.example"}).status_code == 403


def test_stars_let_all_in(make: MakeApp) -> None:
    client = TestClient(make(allowed_host=["*"], allowed_origin=["*"]), base_url="http://x")
    response = client.get("/health", headers={"Host": "a.b", "Origin": "https://c.d"})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "https://c.d"


def test_a_request_may_be_too_large(guarded: TestClient) -> None:
    headers = {"X-Api-Key": KEYS[0]}
    message = {"role": "user", "content": "x"}
    many = {"messages": [message] * 4}
    response = guarded.post("/v1/chat/completions", json=many, headers=headers)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")
    long = json.dumps({"messages": [{"role": "user", "content": "x" * 1000}]}).encode()
    response = guarded.post("/v1/chat/completions", content=long, headers=headers)
    assert response.status_code == 413
    pieces = (long[i : i + 100] for i in range(0, len(long), 100))  # without content-length
    response = guarded.post("/v1/chat/completions", content=pieces, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_long")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/nowhere", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/health", 405),
     ("PUT", "/tokenize", 405), ("GET", "/health/", 200), ("HEAD", "/health", 200)],
)  # fmt: skip
def test_paths_and_methods(client: TestClient, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    if status >= 400:
        assert strict(response.text)["error"]["message"]
    if status == 405:
        assert response.headers["allow"]


def test_any_name_may_be_answered_by_the_first_model(make: MakeApp) -> None:
    client = TestClient(make(any_model_name=True), base_url="http://localhost")
    response = client.post("/v1/chat/completions", json={**HELLO, "model": "gpt-4o"})
    assert (response.status_code, response.json()["model"]) == (200, "demo")


def test_keys_are_checked(tmp_path: Path) -> None:
    for options in (
        {"api_key": ["short"]},
        {"api_key": ["with \u00e9 in it"]},
        {"api_key_file": tmp_path / "none"},
    ):
        with pytest.raises(InputError):
            ServerOptions(**options).all_keys()  # type: ignore[arg-type]
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InputError, match="no API key"):
        read_keys(tmp_path / "empty")
    (tmp_path / "of an editor").write_bytes(b"\xef\xbb\xbfsecretkey1\r\n\r\nsecretkey2\r\n")
    assert read_keys(tmp_path / "of an editor") == ["secretkey1", "secretkey2"]


def test_host_names() -> None:
    assert host_name("A.example.:80") == "a.example"
    assert host_name("[::1]:80") == "::1"


def test_names_of_headers_are_written_as_usual(url: str) -> None:
    """Some clients compare them with case."""
    response = httpx.options(
        f"{url}/completions",
        headers={"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"},
    )
    names = {name for name, _ in response.headers.raw}
    assert names >= {b"Access-Control-Allow-Origin", b"Access-Control-Allow-Headers", b"Vary"}
    allowed = response.headers["access-control-allow-headers"].lower().split(", ")
    assert {"x-conversation-id", "last-event-id"} <= set(allowed)  # so that pages can resume
    assert "Retry-After" in response.headers["access-control-expose-headers"]


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://evil.example"])
def test_pages_may_send_the_headers_that_they_ask_for(client: TestClient, origin: str) -> None:
    """The packages of OpenAI and Anthropic for browsers send headers of their own."""
    asked = "x-stainless-lang,anthropic-dangerous-direct-browser-access, x-title"
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST",
               "Access-Control-Request-Headers": asked}  # fmt: skip
    found = client.options("/v1/chat/completions", headers=headers).headers
    allowed = {name.strip() for name in found["access-control-allow-headers"].lower().split(",")}
    assert {"authorization", "x-stainless-lang", "x-title"} <= allowed
    known = origin if "localhost" in origin else None
    assert found.get("access-control-allow-origin") == known  # without it, the rest has no effect


@pytest.mark.parametrize(
    ("keys", "clients"), [(KEYS, [name_of(key) for key in KEYS]), (KEYS[:1], ["x"])]
)
def test_the_task_of_a_request_runs_for_the_owner_of_its_key(
    keys: list[str], clients: list[str]
) -> None:
    """On the event loop; with one key it runs for the client's address."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(CLIENT.get())

    async def nothing(*_: Any) -> Any:
        raise AssertionError

    def refuse(path: str, error: ApiError) -> ASGIApp:
        raise error

    guard = Guard(app, ServerOptions(), Keys(keys), refuse, frozenset())
    for key in keys:
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
        scope = {"type": "http", "method": "GET", "path": "/v1/models", "headers": headers}
        context = copy_context()
        context.run(CLIENT.set, "x")
        context.run(asyncio.run, guard(scope, nothing, nothing))
    assert seen == clients
