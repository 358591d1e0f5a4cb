"""Models in Ollama's API: names, descriptions, unloading, management."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.asgi import strict
from tests.server.conftest import wait_for
from tests.server.ollama_calls import CHAT, HELLO, lines, post
from trinity.errors import InputError
from trinity.model import Model
from trinity.server import model_refs
from trinity.server.app import make_app
from trinity.server.endpoints.ollama.models import short_count
from trinity.server.endpoints.ollama.names import seconds_of
from trinity.server.errors import ApiError
from trinity.server.model_refs import served_models
from trinity.server.models import Models
from trinity.server.served import Served


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
@pytest.mark.parametrize("keep_alive", [0, "0", "0s", "0m"])
def test_a_model_is_unloaded_when_it_is_kept_for_no_time(path: str, keep_alive: Any) -> None:
    """`ollama stop` sends this request; the next request loads the model again."""
    loads: list[Model] = []

    def load() -> Model:
        loads.append(trinity.load(trinity.demo_model(), threads=1))
        return loads[-1]

    models = Models([Served("demo", "demo.gguf", load)])
    with TestClient(make_app(models), base_url="http://localhost") as client:
        wait_for(lambda: models.ready)
        answer = post(client, path, model="demo", keep_alive=keep_alive)
        assert (answer["done"], answer["done_reason"]) == (True, "unload")
        wait_for(lambda: not models.ready)
        assert client.get("/health").status_code == 200  # else who watches it ends the server
        assert strict(client.get("/api/ps").text) == {"models": []}
        # An answer that is under way is not cut off.
        asked = {"messages": HELLO} if path == "/api/chat" else {"prompt": "Who?"}
        body = {"model": "demo", "options": {"num_predict": 8}, **asked}
        *_, last = lines(client, path, **body, keep_alive=keep_alive)
        assert last["eval_count"] == 8
        wait_for(lambda: not models.ready)
        post(client, path, model="demo", keep_alive="5m")
        assert models.ready
        (shown,) = strict(client.get("/api/ps").text)["models"]
        left = datetime.fromisoformat(shown["expires_at"]) - datetime.now(UTC)
        assert 200 < left.total_seconds() <= 300
        post(client, path, model="demo", keep_alive=-1)
        (shown,) = strict(client.get("/api/ps").text)["models"]
        assert datetime.fromisoformat(shown["expires_at"]).year == 9999
    assert len(loads) == 3


def test_names_may_have_a_tag(client: TestClient) -> None:
    for name in ("demo:latest", "Demo", "DEMO:latest"):
        answer = post(client, "/api/chat", **{**CHAT, "model": name}, stream=False)
        assert answer["model"] == name


@pytest.mark.parametrize("path", ["chat", "generate", "embed", "embeddings", "show"])
def test_an_unknown_model_is_not_found_in_ollamas_words(client: TestClient, path: str) -> None:
    body = {"messages": HELLO, "prompt": "a", "input": "a"}
    response = client.post(f"/api/{path}", json={"model": "nope:7b", **body})
    assert (response.status_code, strict(response.text)) == (
        404,
        {"error": "model 'nope:7b' not found"},
    )
    response = client.post(f"/api/{path}", json=body)
    assert (response.status_code, strict(response.text)) == (400, {"error": "model is required"})


@pytest.mark.parametrize("path", ["chat", "generate", "embed", "embeddings", "show"])
def test_the_older_name_of_the_model_parameter(client: TestClient, path: str) -> None:
    assert client.post(f"/api/{path}", json={"name": "demo"}).status_code == 200


def test_models(client: TestClient, model: Model) -> None:
    (tag,) = strict(client.get("/api/tags").text)["models"]
    assert (tag["name"], tag["details"]["family"]) == ("demo", model.config.architecture)
    assert tag["details"]["quantization_level"] == "I2_S"
    assert len(tag["digest"]) == 64
    assert tag["capabilities"] == post(client, "/api/show", model="demo")["capabilities"]
    (loaded,) = strict(client.get("/api/ps").text)["models"]
    assert loaded["context_length"] == 512
    assert datetime.fromisoformat(loaded["expires_at"]).year == 9999
    assert strict(client.get("/api/version").text) == {"version": trinity.__version__}


def test_show(client: TestClient, model: Model) -> None:
    found = post(client, "/api/show", model="demo")
    assert found["model_info"]["general.architecture"] == model.config.architecture
    assert found["model_info"]["tokenizer.ggml.tokens"] == []
    assert found["model_info"]["general.parameter_count"] > 1e6
    # Clients list a model with "embedding" for embeddings only.
    assert "completion" in found["capabilities"]
    assert "embedding" not in found["capabilities"]
    verbose = post(client, "/api/show", model="demo", verbose=True)
    assert len(verbose["model_info"]["tokenizer.ggml.tokens"]) == model.config.vocab_size


def test_a_pull_of_a_served_model_succeeds(client: TestClient) -> None:
    *_, pulling, _, _, last = lines(client, "/api/pull", model="demo")
    assert last == {"status": "success"}
    assert pulling["completed"] == pulling["total"]
    assert post(client, "/api/pull", name="demo", stream=False) == {"status": "success"}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "pull", {"model": "nope"}, 501, "model 'nope' not found"),
        ("POST", "push", {"model": "demo"}, 400, "uploads no models"),
        (
            "POST",
            "create",
            {"model": "mario", "from": "demo", "system": "S"},
            501,
            "creates, copies",
        ),
        ("POST", "copy", {"source": "demo", "destination": "b"}, 501, "--allow-create"),
        ("DELETE", "delete", {"model": "demo"}, 501, "--allow-create"),
        ("HEAD", f"blobs/sha256:{'0' * 64}", None, 404, ""),
        ("HEAD", "blobs/sha256:00", None, 400, ""),
        ("POST", f"blobs/sha256:{'0' * 64}", None, 501, "--allow-create"),
    ],
)
def test_what_the_server_does_not_manage_says_so(
    client: TestClient, method: str, path: str, body: Any, status: int, words: str
) -> None:
    response = client.request(method, f"/api/{path}", json=body)
    assert response.status_code == status
    if method != "HEAD":
        assert words in strict(response.text)["error"]


def test_a_longer_context_is_loaded_when_a_request_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the model is idle; up to its own limit, and in few steps."""
    monkeypatch.setattr(model_refs, "usual_context", lambda ref: 128)
    (served,) = served_models([f"demo={trinity.demo_model()}"], {"threads": 1}, print)
    loads: list[int | None] = []
    load = served.load

    def counted() -> Model:
        loads.append(served.context)
        return load()

    served.load = counted
    models = Models([served])

    def asked(client: TestClient, length: int, ignored: str | None = None) -> None:
        options = {"num_predict": 4, "num_ctx": length}
        body = {**CHAT, "options": options, "stream": False}
        answer = client.post("/api/chat", json=body)
        assert answer.json()["done"], answer.text
        assert answer.headers.get("x-trinity-ignored") == ignored

    with TestClient(make_app(models), base_url="http://localhost") as client:
        asked(client, 100)
        served.users += 1  # another request
        asked(client, 200, "options.num_ctx")
        served.users -= 1
        assert loads == [None]
        asked(client, 200)
        assert loads == [None, 256]
        (loaded,) = client.get("/api/ps").json()["models"]
        assert loaded["context_length"] == 256
        asked(client, 130)
        asked(client, 100_000, "options.num_ctx")
        asked(client, 200_000, "options.num_ctx")
        post(client, "/api/embed", model="demo", input="a", options={"num_ctx": 512})
        assert loads == [None, 256, 512]


def test_a_context_that_does_not_fit_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_refs, "usual_context", lambda ref: 128)
    (served,) = served_models([f"demo={trinity.demo_model()}"], {"threads": 1}, print)
    models = Models([served])
    body = {**CHAT, "options": {"num_predict": 4, "num_ctx": 512}, "stream": False}

    def broken() -> Model:
        raise InputError("too little memory")

    with TestClient(make_app(models), base_url="http://localhost") as client:
        wait_for(lambda: models.ready)
        with monkeypatch.context() as patched:
            patched.setattr("trinity.server.models.available_memory", lambda: 1 << 16)
            answer = post(client, "/api/chat", **body)
            assert (answer["done"], served.context) == (True, None)
        load, served.most_context = served.load, None
        served.load = lambda: load() if served.context is None else broken()
        answer = post(client, "/api/chat", **body)
        assert (answer["done"], served.context, served.most_context) == (True, None, 128)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(0, 0), ("0", 0), (300, 300), ("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("100ms", 0.1),
     (-1, math.inf), ("-1m", math.inf), ("nan", math.inf), ("inf", math.inf), (None, None)],
)  # fmt: skip
def test_lengths_of_time(text: Any, seconds: float | None) -> None:
    assert seconds_of(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("count", "text"), [(900, "900"), (5_300_000, "5.3M"), (7_615_000_000, "7.6B")]
)
def test_numbers_of_parameters(count: int, text: str) -> None:
    assert short_count(count) == text


@pytest.mark.parametrize("text", ["soon", "5x", "1" * 200_000 + "x"], ids=["word", "unit", "long"])
def test_what_is_no_length_of_time_is_refused_at_once(text: str) -> None:
    with pytest.raises(ApiError, match="is not a length of time such as 5m"):
        seconds_of(text)
