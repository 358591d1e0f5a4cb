"""With several keys, each key is a client whose requests take turns with the others'."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.keys.attempts import CHAT
from tests.server.keys.conftest import Serve
from trinity.runtime.scheduling.engine_thread import EngineThread


@pytest.mark.parametrize(
    ("path", "body", "submissions"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, 1),
        ("/v1/completions", {"prompt": "x", "max_tokens": 1}, 1),
        ("/v1/completions", {"prompt": "xy", "max_tokens": 1, "echo": True, "logprobs": 1}, 2),
        ("/v1/embeddings", {"input": "x"}, 1),
    ],
)
def test_the_engine_knows_whose_a_request_is(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str, body: Any, submissions: int
) -> None:
    known, submit = list[str](), EngineThread.submit

    def noted(self: EngineThread, *sequences: Any, client: str = "") -> None:
        known.append(client)
        submit(self, *sequences, client=client)

    monkeypatch.setattr(EngineThread, "submit", noted)
    with serve() as server:
        for key in "ABA":
            assert server.ask(key, "POST", path, body)[0] == 200
    first, second, third = (known[i : i + submissions] for i in range(0, len(known), submissions))
    assert first == third == [first[0]] * submissions
    assert second == [second[0]] * submissions
    assert "" != first[0] != second[0] != ""


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
        ("/v1/completions", {"prompt": "x", "max_tokens": 1}),
        ("/v1/embeddings", {"input": "x"}),
    ],
)
def test_no_key_goes_before_the_others(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    priorities, submit = list[int](), EngineThread.submit

    def noted(self: EngineThread, *sequences: Any, client: str = "") -> None:
        priorities.extend(sequence.priority for sequence in sequences)
        submit(self, *sequences, client=client)

    monkeypatch.setattr(EngineThread, "submit", noted)
    with serve() as server:
        for asked in (-1000, -1, 0, 7):
            assert server.ask("A", "POST", path, {**body, "priority": asked})[0] == 200
        assert priorities == [0, 0, 0, 7]
    with serve(keys={"A": "the-only-key"}) as server:
        assert server.ask("A", "POST", path, {**body, "priority": -5})[0] == 200
    assert priorities[4:] == [-5]
