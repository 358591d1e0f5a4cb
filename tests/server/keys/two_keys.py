"""A server with two API keys, and its responses without their random parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.testclient import TestClient

# What differs from one answer to the next in any case.
VOLATILE = frozenset(
    {"created", "created_at", "completed_at", "cancelling_at", "cancelled_at", "expires_at",
     "cpu_seconds", "started_at", "id", "first_id", "last_id", "item_id", "prompt_ms",
     "predicted_ms", "prompt_per_token_ms", "predicted_per_token_ms", "prompt_per_second",
     "predicted_per_second", "total_duration", "load_duration", "prompt_eval_duration",
     "eval_duration", "timestamp", "save_ms", "restore_ms", "time_ms"}
)  # fmt: skip


@dataclass
class Server:
    """A server with two keys. ``names`` are key A's objects by placeholder."""

    client: TestClient
    keys: dict[str, str]
    names: dict[str, str] = field(default_factory=dict)

    def ask(
        self, key: str, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, Any]:
        """Return status and content of a response without its random parts."""
        headers = {"Authorization": f"Bearer {self.keys[key]}", **options.pop("headers", {})}
        content = json.dumps(body)
        for placeholder, name in self.names.items():
            path, content = path.replace(placeholder, name), content.replace(placeholder, name)
        if body is not None:
            options["json"] = json.loads(content)
        found = self.client.request(method, path, headers=headers, **options)
        text = found.text
        for placeholder, name in self.names.items():
            text = text.replace(name, placeholder)
        try:
            return found.status_code, steady(json.loads(text))
        except ValueError:
            return found.status_code, [steady(one) for one in data_of(text)] or text

    def made(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Return what key A has created."""
        headers = {"Authorization": f"Bearer {self.keys['A']}", **options.pop("headers", {})}
        found = self.client.request(method, path, headers=headers, json=body, **options)
        assert found.status_code == 200, found.text
        return found.json() if found.headers["content-type"] == "application/json" else found.text


def data_of(text: str) -> list[Any]:
    """Return the data of a stream's events."""
    lines = [line for line in text.split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def steady(found: Any) -> Any:
    """Return JSON without volatile values."""
    if isinstance(found, dict):
        return {key: steady(one) for key, one in found.items() if key not in VOLATILE}
    return [steady(one) for one in found] if isinstance(found, list) else found


Ask = Callable[[Server, str], Any]
Make = Callable[[Server], Any]


def asking(method: str, path: str, body: Any = None, **options: Any) -> Ask:
    """Make an attempt of one request."""
    return lambda server, key: server.ask(key, method, path, body, **options)
