"""Every API has the same limits on stop strings."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.asgi import strict
from tests.server.conftest import MakeApp
from trinity.runtime.limits import MOST_STOP_CHARACTERS, MOST_STOP_STRINGS

MESSAGES = [{"role": "user", "content": "hi"}]


def body_of(path: str, stop: list[str]) -> dict[str, Any]:
    """Return a request of four tokens with these stop strings."""
    match path:
        case "/v1/chat/completions":
            return {"messages": MESSAGES, "max_tokens": 4, "stop": stop}
        case "/v1/completions":
            return {"prompt": "hi", "max_tokens": 4, "stop": stop}
        case "/completion":
            return {"prompt": "hi", "n_predict": 4, "stop": stop}
        case "/v1/messages":
            return {"model": "demo", "messages": MESSAGES, "max_tokens": 4, "stop_sequences": stop}
        case "/v1/responses":
            return {"input": "hi", "max_output_tokens": 4, "stop": stop}
        case _:
            options = {"num_predict": 4, "stop": stop}
            return {"model": "demo", "prompt": "hi", "stream": False, "options": options}


PATHS = ("/v1/chat/completions", "/v1/completions", "/completion", "/v1/messages",
         "/v1/responses", "/api/generate")  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_many_stop_strings(make: MakeApp, path: str) -> None:
    client = TestClient(make(), base_url="http://localhost")
    most = [chr(0x4E00 + i) for i in range(MOST_STOP_STRINGS)]
    found = client.post(path, json=body_of(path, most))
    assert found.status_code == 200, found.text
    for wrong in ([*most, "x"], ["x" * 7000, "y" * (MOST_STOP_CHARACTERS - 6999)]):
        found = client.post(path, json=body_of(path, wrong))
        assert found.status_code == 400
        error = strict(found.text)["error"]
        message = error if isinstance(error, str) else error["message"]
        assert "stop has" in message
        assert "at most" in message
