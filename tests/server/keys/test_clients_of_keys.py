"""A client of several keys is a key, for turns in the queue and for shares of grammars."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.keys.attempts import CHAT
from tests.server.keys.conftest import Serve
from trinity.runtime.turns import client
from trinity.server import service as module
from trinity.server.caller import Caller
from trinity.server.ignored import Ignored


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_it_is_known_where_requests_are_begun(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    known, start = list[str](), module.Service.start

    def noted(self: module.Service, ignored: Ignored, caller: Caller, *given: Any) -> Any:
        assert caller.client == client.get()
        known.append(caller.client)
        return start(self, ignored, caller, *given)

    monkeypatch.setattr(module.Service, "start", noted)
    body = {"messages": [{"role": "user", "content": "x"}]} if path == CHAT else {"prompt": "x"}
    with serve() as server:
        for key in "ABA":
            assert server.ask(key, "POST", path, {**body, "max_tokens": 1})[0] == 200
    assert known[0] == known[2] != known[1]
    assert "" not in known
