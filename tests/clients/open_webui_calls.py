"""The requests of Open WebUI 0.12's backend to Ollama's API, by httpx."""

# packages: httpx==0.28.1

from __future__ import annotations

import json
import time
from typing import Any

import httpx
from rows import CHAT, DEMO, EMBEDDER, URL, main, row

client = httpx.Client(base_url=URL, timeout=300)
HELLO = [{"role": "user", "content": "Say hello."}]


def post(path: str, **body: Any) -> Any:
    """The answer to a request that is not streamed."""
    response = client.post(path, json=body)
    response.raise_for_status()
    return response.json()


def lines(path: str, **body: Any) -> list[Any]:
    """The lines of a streamed answer."""
    with client.stream("POST", path, json=body) as response:
        response.raise_for_status()
        return [json.loads(line) for line in response.iter_lines()]


@row("start, both connections, model list, verify buttons")
def _() -> None:
    assert client.get("/api/version").json()["version"]
    assert CHAT in [one["model"] for one in client.get("/api/tags").json()["models"]]
    assert CHAT in [one["id"] for one in client.get("/v1/models").json()["data"]]
    assert isinstance(client.get("/api/ps").json()["models"], list)


@row("first chat 'Say hello.' by Ollama connection, default server")
def _() -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tools = [
        {"type": "function", "function": {
            "name": f"tool_{i}", "description": "Describes itself at length. " * 40,
            "parameters": schema}}
        for i in range(20)
    ]  # fmt: skip
    found = lines(
        "/api/chat", model=CHAT, messages=HELLO, stream=True, tools=tools,
        options={"num_predict": 12}, keep_alive="5m", format="", think=None,
    )  # fmt: skip
    assert found[-1]["done"]
    assert found[-1]["prompt_eval_count"] > 3000


@row("title, tags, follow-ups")
def _() -> None:
    found = post(
        "/api/chat", model=CHAT, messages=HELLO, stream=False, options={"num_predict": 30},
        metadata={"task": "title_generation"},
    )  # fmt: skip
    assert found["message"]["content"]


@row("RAG, embedding engine Ollama")
def _() -> None:
    texts = ["A first chunk.", "A second one. " * 300]
    found = post("/api/embed", input=texts, model=EMBEDDER, truncate=True)
    assert [len(one) for one in found["embeddings"]] == [384, 384]


@row("unload (eject) button")
def _() -> None:
    lines("/api/chat", model=DEMO, messages=HELLO, options={"num_predict": 4})
    assert post("/api/generate", model=DEMO, keep_alive=0, prompt="")["done_reason"] == "unload"
    for _ in range(100):
        if DEMO not in [one["model"] for one in client.get("/api/ps").json()["models"]]:
            return
        time.sleep(0.1)
    raise AssertionError("it is still loaded")


@row("pull in admin")
def _() -> None:
    assert lines("/api/pull", name=CHAT, model=CHAT)[-1] == {"status": "success"}


if __name__ == "__main__":
    main()
