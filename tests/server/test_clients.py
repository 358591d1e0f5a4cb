"""The scripts of official clients against a server, behind a socket, with the demo model."""

from __future__ import annotations

import pytest

pytest.importorskip("openai")
pytest.importorskip("anthropic")

from scripts.clients import anthropic_calls, openai_calls


def test_openai(url: str) -> None:
    with openai_calls.client_of(url) as client:
        failed = openai_calls.calls.run(client, "demo")
    assert not failed


def test_anthropic(url: str) -> None:
    with anthropic_calls.client_of(url) as client:
        failed = anthropic_calls.calls.run(client, "demo")
    assert not failed


def test_each_script_has_thirty_calls() -> None:
    assert len(openai_calls.calls.found) >= 30
    assert len(anthropic_calls.calls.found) >= 30
