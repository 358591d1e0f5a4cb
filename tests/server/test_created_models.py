"""Ollama's /api/create, /api/copy, /api/delete and /api/blobs with --allow-create."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.formats.huggingface.class_models import write
from tests.server.asgi import strict
from tests.server.conftest import wait_for
from tests.server.ollama_calls import lines, post
from trinity.formats.ollama import own_store as writing
from trinity.server.app import make_app
from trinity.server.created import CreatedModels
from trinity.server.model_refs import served_models
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions
from trinity.tools.convert import convert

DEMO = Path(trinity.chat_model())
SAID = {"messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 1}}
Start = Callable[..., TestClient]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of trinity's own store."""
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "models"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "none"))
    return tmp_path / "models"


@pytest.fixture
def start(store: Path) -> Iterator[Start]:
    """Start a server of the demo chat model, whose requests may create others."""
    clients = []

    def started(most: int = 1 << 30, **options: Any) -> TestClient:
        def made(ref: str) -> Served:
            (served,) = served_models([ref], {"threads": 1}, print)
            return served

        def added(name: str, ref: str) -> Served:
            served = made(ref)
            served.name = name
            return served

        models = Models([made(f"demo={DEMO}")])
        created = CreatedModels(added, most)
        created.offer(models)
        settings = ServerOptions(preload=False, **options)
        app = make_app(models, settings, created=created)
        client = TestClient(app, base_url="http://localhost")
        client.__enter__()
        clients.append(client)
        return client

    yield started
    for client in clients:
        client.__exit__(None, None, None)


def files(store: Path) -> set[str]:
    return {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}


def push(client: TestClient, content: bytes, status: int = 201) -> str:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    response = client.post(f"/api/blobs/{digest}", content=content)
    assert (response.status_code, response.text) == (status, "")
    return digest


def names(client: TestClient) -> list[str]:
    return [one["name"] for one in strict(client.get("/api/tags").text)["models"]]


def error(client: TestClient, method: str, path: str, status: int, body: Any) -> str:
    response = client.request(method, f"/api/{path}", json=body)
    assert response.status_code == status, response.text
    found: str = strict(response.text.splitlines()[-1])["error"]
    return found


def test_from_a_model_with_settings(start: Start, store: Path) -> None:
    client = start()
    *_, before, last = lines(
        client, "/api/create", model="mario", **{"from": "demo"}, system="You are Mario.",
        parameters={"temperature": 0.5, "num_ctx": 256, "stop": ["!"]}, license="free",
        messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    )  # fmt: skip
    assert (before, last) == ({"status": "writing manifest"}, {"status": "success"})
    assert names(client) == ["demo", "mario"]
    shown = post(client, "/api/show", model="mario")
    assert shown["system"] == "You are Mario."
    assert shown["license"] == "free"
    assert 'SYSTEM """You are Mario."""' in shown["modelfile"]
    assert shown["parameters"].split("\n") == [
        f"{'temperature':<30} 0.5", f"{'num_ctx':<30} 256", f'{"stop":<30} "!"'
    ]  # fmt: skip
    assert [one["content"] for one in shown["messages"]] == ["a", "b"]
    answer = post(client, "/api/chat", model="mario:latest", stream=False, **SAID)
    plain = post(client, "/api/chat", model="demo", stream=False, **SAID)
    assert answer["prompt_eval_count"] > plain["prompt_eval_count"]
    (loaded,) = [x for x in client.get("/api/ps").json()["models"] if x["name"] == "mario"]
    assert loaded["context_length"] == 256
    # The weights are the same file, not a copy.
    (blob,) = [path for path in (store / "blobs").iterdir() if path.samefile(DEMO)]
    assert blob.stat().st_nlink > 1
    # A further model keeps what it does not replace.
    made = {"model": "luigi", "from": "Mario", "parameters": {"temperature": 1}, "stream": False}
    assert post(client, "/api/create", **made) == {"status": "success"}
    shown = post(client, "/api/show", model="luigi")
    assert shown["system"] == "You are Mario."
    assert f"{'temperature':<30} 1\n" in shown["parameters"]
    # Another server offers them.
    assert names(start()) == ["demo", "luigi", "mario"]


def test_from_blobs(start: Start, store: Path) -> None:
    client = start()
    content = DEMO.read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    assert client.head(f"/api/blobs/{digest}").status_code == 404
    assert push(client, content) == digest
    assert client.head(f"/api/blobs/{digest}").status_code == 200
    push(client, content, 200)
    made = lines(client, "/api/create", model="a/b:c", files={"x.gguf": digest},
                 template="{{ .System }}>{{ .Prompt }}", stream=True)  # fmt: skip
    assert made[-1] == {"status": "success"}
    assert made[0] == {"status": f"using existing layer {digest}"}
    shown = post(client, "/api/show", model="a/b:c")
    assert shown["template"] == "{{ .System }}>{{ .Prompt }}"
    assert post(client, "/api/chat", model="a/b:c", stream=False, **SAID)["done"]


def test_copy_and_delete(start: Start, store: Path) -> None:
    client = start()
    body = {"source": "demo", "destination": "second"}
    response = client.post("/api/copy", json=body)
    assert (response.status_code, response.text) == (200, "")
    post(client, "/api/create", model="third", **{"from": "second"}, system="S", stream=False)
    count = len(files(store))
    post(client, "/api/chat", model="second", stream=False, **SAID)
    response = client.request("DELETE", "/api/delete", json={"model": "second"})
    assert (response.status_code, response.text) == (200, "")
    assert names(client) == ["demo", "third"]
    wait_for(lambda: not client.get("/api/ps").json()["models"])
    assert len(files(store)) == count - 1  # its manifest: the blobs are shared
    assert error(client, "DELETE", "delete", 404, {"model": "second"}) == "model 'second' not found"
    assert post(client, "/api/chat", model="third", stream=False, **SAID)["done"]
    assert client.request("DELETE", "/api/delete", json={"name": "third"}).status_code == 200
    assert files(store) == set()
    assert DEMO.exists()
    assert "store of created models" in error(client, "DELETE", "delete", 403, {"model": "demo"})
    assert names(client) == ["demo"]


def test_a_model_is_replaced_while_it_responds(start: Start, store: Path) -> None:
    client = start()
    make = {"model": "m", "from": "demo", "stream": False}
    post(client, "/api/create", **make, system="one")
    with client.stream("POST", "/api/chat", json={**SAID, "model": "m"}) as response:
        post(client, "/api/create", **make, system="two")
        *_, last = response.iter_lines()
    assert json.loads(last)["done"]
    assert post(client, "/api/show", model="M")["system"] == "two"
    wait_for(lambda: len(client.get("/api/ps").json()["models"]) == 1)
    assert names(client) == ["demo", "m"]
    assert len(list((store / "manifests").rglob("latest"))) == 1


@pytest.mark.parametrize("form", ["gguf", "directory"])
def test_quantized_when_created(start: Start, store: Path, tmp_path: Path, form: str) -> None:
    """From one GGUF file, and from the files of a directory."""
    folder = write("internlm3", tmp_path / "float")
    if form == "gguf":
        convert(folder, tmp_path / "float.gguf", outtype="f16")
        given = {"float.gguf": tmp_path / "float.gguf"}
    else:
        given = {path.name: path for path in folder.iterdir()}
    client = start()
    uploaded = {name: push(client, path.read_bytes()) for name, path in given.items()}
    made = lines(client, "/api/create", model="small", files=uploaded, quantize="q8_0",
                 system="S")  # fmt: skip
    assert made[0] == {"status": "quantizing model to Q8_0"}
    assert made[-1] == {"status": "success"}
    assert not {f"using existing layer {digest}" for digest in uploaded.values()} & {
        step["status"] for step in made
    }
    shown = post(client, "/api/show", model="small")
    assert shown["details"]["quantization_level"] == "Q8_0"
    assert shown["system"] == "S"
    assert post(client, "/api/generate", model="small", prompt="a", stream=False,
                options={"num_predict": 1})["done"]  # fmt: skip
    (weights,) = [
        path for path in (store / "blobs").iterdir() if path.read_bytes()[:4] == b"GGUF"
        and path.name.replace("-", ":") not in uploaded.values()
    ]  # fmt: skip
    assert weights.name == f"sha256-{hashlib.sha256(weights.read_bytes()).hexdigest()}"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "a"}, 400, "neither 'from' or 'files'"),
        ({"model": "../a", "from": "demo"}, 400, "not a valid model name"),
        ({"model": "..", "from": "demo"}, 400, "not a valid model name"),
        ({"model": "a/../../b", "from": "demo"}, 400, "not a valid model name"),
        ({"from": "demo"}, 400, "not a valid model name"),
        ({"model": "a", "from": "nope"}, 404, "model 'nope' not found"),
        ({"model": "demo", "from": "demo"}, 400, "was started with"),
        ({"model": "Demo:latest", "from": "demo"}, 400, "was started with"),
        ({"model": "a", "files": {}}, 400, "none of the files"),
        ({"model": "a", "files": {"a.gguf": "sha256:../../../etc/passwd"}}, 400, "not a digest"),
        ({"model": "a", "files": {"a.gguf": "sha256:" + "0" * 64}}, 400, "not found"),
        ({"model": "a", "from": "demo", "template": "{{ if }}"}, 400, ""),
        ({"model": "a", "from": "demo", "template": "{% if a %}{% endif %}"}, 400, "Jinja"),
        ({"model": "a", "from": "demo", "parameters": {"top_k": "x"}}, 400, "top_k is 'x'"),
        ({"model": "a", "from": "demo", "quantize": "q4_K_M"}, 400, "only supported for F16"),
        ({"model": "a", "from": "demo", "quantize": "q4_X"}, 400, "quantize: type is 'q4_X'"),
        ({"model": "a", "from": "demo", "adapters": {"a": "sha256:" + "0" * 64}}, 400, "not found"),
    ],
)  # fmt: skip
def test_what_is_refused(
    start: Start, store: Path, body: dict[str, Any], status: int, words: str
) -> None:
    client = start()
    found = error(client, "POST", "create", status, {**body, "stream": False})
    assert words in found
    assert str(store.parent) not in found
    assert names(client) == ["demo"]
    assert not [path for path in files(store) if path.startswith("manifests")]


def test_damaged_blobs(start: Start, store: Path) -> None:
    client = start()
    wrong = f"sha256:{'1' * 64}"
    response = client.post(f"/api/blobs/{wrong}", content=b"abc")
    assert (response.status_code, "digest mismatch" in response.text) == (400, True)
    assert files(store) == set()
    for name in ("sha256:00", "sha256:..%2F..%2Fx", "..%2Fx", "x" * 64):
        assert client.post(f"/api/blobs/{name}", content=b"abc").status_code in (400, 404)
        assert client.head(f"/api/blobs/{name}").status_code in (400, 404)
    damaged = push(client, DEMO.read_bytes()[:5000])
    found = error(client, "POST", "create", 400, {"model": "a", "files": {"m": damaged}})
    assert str(store.parent) not in found
    text = push(client, b"no model")
    assert "none of the files" in error(
        client, "POST", "create", 400, {"model": "a", "files": {"m.bin": text}}
    )
    assert names(client) == ["demo"]


def test_the_store_has_a_limit(start: Start, store: Path) -> None:
    client = start(most=1000)
    response = client.post(f"/api/blobs/sha256:{'0' * 64}", content=b"a" * 1001)
    assert (response.status_code, "the limit is 1000" in response.text) == (413, True)
    assert "the limit is 1000" in error(
        client, "POST", "create", 413, {"model": "a", "from": "demo", "stream": False}
    )
    assert files(store) == set()


def test_a_key_changes_only_its_own_models(start: Start) -> None:
    client = start(api_key=("first-key-1", "second-key-2"))
    first, second = ({"Authorization": f"Bearer {key}"} for key in ("first-key-1", "second-key-2"))
    make = {"model": "m", "from": "demo", "stream": False}
    assert client.post("/api/create", json=make).status_code == 401
    assert client.post("/api/create", json=make, headers=first).status_code == 200
    assert client.post("/api/create", json=make, headers=second).status_code == 403
    for headers, status in ((second, 403), (first, 200)):
        response = client.request("DELETE", "/api/delete", json={"model": "m"}, headers=headers)
        assert response.status_code == status


def test_unused_blobs_are_removed_at_the_start(
    start: Start, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    push(client, b"never used")
    post(client, "/api/create", model="m", **{"from": "demo"}, stream=False)
    count = len(files(store))
    start()
    assert len(files(store)) == count
    monkeypatch.setattr(writing, "UNUSED_SECONDS", -10)
    assert names(start()) == ["demo", "m"]
    assert len(files(store)) == count - 1
