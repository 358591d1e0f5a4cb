"""Adapters per request and for the server, in llama.cpp's format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.models.adapter_files import peft_directory
from tests.runtime.test_adapters import HIDDEN, pairs_of
from tests.server.asgi import strict
from tests.tiny_models import write_tiny_model
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.models import Models
from trinity.server.served import Served

BODY = {"prompt": [5, 9, 17, 30], "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A tiny model with two adapters, of which the first is used."""
    folder = tmp_path_factory.mktemp("lora")
    write_tiny_model(folder / "m.gguf", type="F32", hidden_size=HIDDEN)
    for seed in (1, 2):
        peft_directory(folder / str(seed), pairs_of(seed))
    lora = [(folder / "1", 1.0), (folder / "2", 0.0)]
    with trinity.load(folder / "m.gguf", lora=lora, threads=1, batch_invariant=True) as model:
        yield model


@pytest.fixture
def client(adapted: Model) -> TestClient:
    """A new server without changed settings."""
    app = make_app(Models([Served("m", "m.gguf", lambda: adapted, model=adapted)]))
    return TestClient(app, base_url="http://localhost")


def ids(client: TestClient, **body: Any) -> list[int]:
    path = "/completion"
    found = client.post(path, json={**BODY, "return_tokens": True, **body})
    assert found.status_code == 200, found.text
    tokens: list[int] = strict(found.text)["tokens"]
    return tokens


def alone(model: Model, lora: dict[int, float] | None = None) -> list[int]:
    return list(model.generate(BODY["prompt"], max_tokens=8, temperature=0, lora=lora).token_ids)  # type: ignore[arg-type]


def test_a_request_weighs_adapters(client: TestClient, adapted: Model) -> None:
    plain = alone(adapted, {})
    assert len({tuple(one) for one in (plain, alone(adapted), alone(adapted, {1: 0.5}))}) == 3
    assert ids(client) == alone(adapted)
    assert ids(client, lora=[{"id": 1, "scale": 0.5}]) == alone(adapted, {1: 0.5})
    assert ids(client, lora=[]) == plain


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_so_do_openais(client: TestClient, path: str) -> None:
    talk = [{"role": "user", "content": "a"}]
    what = {"messages": talk} if "chat" in path else {"prompt": BODY["prompt"], "echo": True}
    body = {**what, "max_tokens": 8, "temperature": 0, "logprobs": True if "chat" in path else 0}
    answers = [
        strict(client.post(path, json={**body, **lora}).text)["choices"][0]["logprobs"]
        for lora in ({}, {"lora": [{"id": 0, "scale": 1}]}, {"lora": []})
    ]
    assert answers[0] == answers[1] != answers[2]
    if "echo" in body:  # those of the prompt, too
        first, _, plain = (answer["token_logprobs"][1:4] for answer in answers)
        assert first != plain


def test_the_servers_weights(client: TestClient, adapted: Model) -> None:
    def shown() -> list[tuple[int, float]]:
        return [(one["id"], one["scale"]) for one in client.get("/lora-adapters").json()]

    assert shown() == [(0, 1.0), (1, 0.0)]
    text = {"input": "a b"}
    before = client.post("/v1/embeddings", json=text).json()["data"]
    assert client.post("/lora-adapters", json=[{"id": 1, "scale": 0.5}]).json()["success"]
    assert shown() == [(0, 0.0), (1, 0.5)]
    assert ids(client) == alone(adapted, {1: 0.5})
    assert ids(client, lora=[{"id": 0, "scale": 1}]) == alone(adapted)
    assert client.post("/v1/embeddings", json=text).json()["data"] != before


@pytest.mark.parametrize(
    ("path", "lora", "param"),
    [
        ("/completion", [{"id": 2, "scale": 1}], "lora"),
        ("/completion", [{"id": 0}], "lora[0].scale"),
        ("/completion", [{"id": 0, "scale": 1e30}], "lora"),
        ("/lora-adapters", [{"id": 2, "scale": 1}], "lora"),
        ("/lora-adapters", [{"id": 0, "scale": 1e30}], "lora"),
    ],
)
def test_refusals(client: TestClient, path: str, lora: Any, param: str) -> None:
    body = lora if path == "/lora-adapters" else {**BODY, "lora": lora}
    found = client.post(path, json=body)
    assert (found.status_code, strict(found.text)["error"]["param"]) == (400, param), found.text
    assert [one["scale"] for one in client.get("/lora-adapters").json()] == [1.0, 0.0]
