"""Helpers for requests to Anthropic's API, and shared request bodies."""

from __future__ import annotations

from typing import Any

from anthropic.types import Message
from starlette.testclient import TestClient

from tests.server.asgi import strict

PATH = "/v1/messages"
HELLO = [{"role": "user", "content": "Who was Pierre?"}]
GREEDY = {"temperature": 0, "max_tokens": 12}


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json={"messages": HELLO, **GREEDY, **body})
    assert response.status_code == 200, response.text
    Message.model_validate(strict(response.text))
    return strict(response.text)
