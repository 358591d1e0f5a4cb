"""POST /api/pull with --allow-pull: downloads from the hub, whose client is replaced here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import Asked, strict
from tests.server.conftest import LIMIT
from trinity.errors import InputError
from trinity.hub import model as hub
from trinity.hub.model import HubModel
from trinity.hub.name import HubName
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.endpoints.ollama.pulls import WRITTEN
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions

NAME = "hf.co/user/repo:Q4_K_M"
SIZE = 5 * WRITTEN
Progress = Callable[[int, int, str], None]


@pytest.fixture
def models(model: Model) -> Models:
    """A server's models, to which pulls add others."""
    found = Models([Served("demo", "demo.gguf", lambda: model, model=model)])
    found.of_ref = lambda name, ref: Served(name, ref, lambda: model, model=model)
    return found


@pytest.fixture
def pulling(models: Models) -> TestClient:
    return TestClient(make_app(models, ServerOptions()), base_url="http://localhost")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[HubName]:
    """The names that were downloaded."""
    names: list[HubName] = []

    def fetch(name: HubName, notice: object, progress: Progress) -> HubModel:
        names.append(name)
        if name.repository == "user/none":
            raise InputError("/home/somebody: no such repository")
        for done in range(0, SIZE + 1, WRITTEN // 4):
            progress(done, SIZE, "m.gguf")
        return HubModel(name.typed, "/cache/m.gguf")

    monkeypatch.setattr(hub, "fetch", fetch)
    return names


def lines(client: TestClient, **body: Any) -> list[Any]:
    response = client.post("/api/pull", json=body)
    assert response.status_code == 200, response.text
    return [strict(line) for line in response.text.splitlines()]


def test_a_pulled_model_is_served(pulling: TestClient, fetched: list[HubName]) -> None:
    found = lines(pulling, model=NAME)
    assert [one["status"] for one in (found[0], *found[-3:])] == [
        "pulling manifest", "verifying sha256 digest", "writing manifest", "success"
    ]  # fmt: skip
    parts = found[1:-3]
    assert {(one["status"], one["total"]) for one in parts} == {("pulling m.gguf", SIZE)}
    assert [one["completed"] for one in parts] == [n * WRITTEN for n in range(6)]
    assert [(name.repository, name.wanted) for name in fetched] == [("user/repo", "Q4_K_M")]
    said = {"model": NAME, "prompt": "a", "stream": False, "options": {"num_predict": 1}}
    assert pulling.post("/api/generate", json=said).json()["model"] == NAME
    assert NAME in [one["name"] for one in pulling.get("/api/tags").json()["models"]]
    assert lines(pulling, model=NAME)[-1] == {"status": "success"}
    assert len(fetched) == 1  # it is there


@pytest.mark.parametrize("name", ["hf:user/repo", "huggingface.co/user/repo:latest", "user/repo"])
def test_names_of_the_hub(pulling: TestClient, fetched: list[HubName], name: str) -> None:
    answer = pulling.post("/api/pull", json={"model": name, "stream": False})
    assert answer.json() == {"status": "success"}
    assert [(one.repository, one.wanted) for one in fetched] == [("user/repo", None)]


def test_refusals(
    pulling: TestClient, client: TestClient, models: Models, fetched: list[HubName]
) -> None:
    refused = pulling.post("/api/pull", json={"model": "llama3.2"})
    assert (refused.status_code, "hf.co/USER/REPO" in refused.text) == (400, True)
    for stream, status in ((True, 200), (False, 500)):
        failed = pulling.post("/api/pull", json={"model": "hf.co/user/none", "stream": stream})
        assert failed.status_code == status
        error = strict(failed.text.splitlines()[-1])["error"]
        assert "the server's log says why" in error
        assert "/home" not in failed.text
    assert list(models.served) == ["demo"]
    usual = client.post("/api/pull", json={"model": NAME})
    assert (usual.status_code, "--allow-pull" in usual.text) == (501, True)
    assert len(fetched) == 2


def test_who_leaves_ends_the_download(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = threading.Event(), threading.Event()

    def fetch(name: HubName, notice: object, progress: Progress) -> HubModel:
        try:
            while True:
                progress(0, SIZE, "m.gguf")
                began.set()
        finally:
            ended.set()

    async def leave() -> None:
        asked = Asked(make_app(models, ServerOptions()), "/api/pull", {"model": NAME})
        await asyncio.to_thread(began.wait, LIMIT)
        asked.leave.set()
        await asked.done

    monkeypatch.setattr(hub, "fetch", fetch)
    asyncio.run(leave())
    assert ended.wait(LIMIT)
    assert list(models.served) == ["demo"]
