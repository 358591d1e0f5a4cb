"""Helpers for requests to Ollama's API, and shared request bodies."""

from __future__ import annotations

from typing import Any

from starlette.testclient import TestClient

from tests.server.asgi import strict

HELLO = [{"role": "user", "content": "Who was Pierre?"}]
CHAT = {"model": "demo", "messages": HELLO, "options": {"temperature": 0, "num_predict": 8}}
PROMPT = "<|im_start|>user\nWho was Pierre?<|im_end|>\n<|im_start|>assistant\n"


def lines(client: TestClient, path: str, **body: Any) -> list[Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    return [strict(line) for line in response.text.splitlines()]


def post(client: TestClient, path: str, **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return strict(response.text)
