"""The scripts of official clients against a server, behind a socket, with the demo model."""

from __future__ import annotations

import pytest

pytest.importorskip("openai")
pytest.importorskip("anthropic")

from scripts.clients import anthropic_calls, openai_calls

# What needs structured output and tools, which the server refuses as yet.
OPENAI_PENDING = {
    "chat: json_object",
    "chat: json_schema strict",
    "chat, streamed: json_schema strict",
    "chat.parse: a pydantic model",
    "chat: tools, one forced",
    "chat: tools, required, not parallel",
    "chat, streamed: tools, one forced",
    "chat: tools, auto",
    "chat: tools, none",
    "chat: a tool's result",
    "responses: tools, one forced",
    "responses: json_schema strict",
}
ANTHROPIC_PENDING = {
    "tools: one forced",
    "tools: any",
    "tools, streamed: one forced",
    "tools: auto",
    "tools: none",
    "tools: a result",
    "tools: a failed result",
    "output_config: a schema",
}


def test_openai(url: str) -> None:
    with openai_calls.client_of(url) as client:
        failed = openai_calls.calls.run(client, "demo")
    assert failed.keys() == OPENAI_PENDING, failed


def test_anthropic(url: str) -> None:
    with anthropic_calls.client_of(url) as client:
        failed = anthropic_calls.calls.run(client, "demo")
    assert failed.keys() == ANTHROPIC_PENDING, failed


def test_each_script_has_thirty_calls() -> None:
    assert len(openai_calls.calls.found) >= 30
    assert len(anthropic_calls.calls.found) >= 30
