"""The server's folder of stored prefixes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import trinity
from trinity import InputError
from trinity.server.app import make_app
from trinity.server.model_refs import with_prefixes
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions


def test_a_restarted_server_begins_with_what_another_evaluated(tmp_path: Path) -> None:
    def load() -> trinity.Model:
        return trinity.load(trinity.demo_model(), threads=1)

    body = {
        "prompt": "The Emperor Napoleon and Prince Andrew " * 30,
        "max_tokens": 5,
        "temperature": 0,
    }
    found = []
    for _ in range(2):
        served = Served("demo", "", partial(with_prefixes, load, str(tmp_path), 64 << 20))
        with TestClient(make_app(Models([served])), base_url="http://localhost") as client:
            answer = client.post("/v1/completions", json=body).json()
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            found.append((cached, answer["choices"][0]["token_hash"]))
    (cold, first), (warm, second) = found
    assert cold == 0
    assert warm >= 128
    assert first == second


def test_it_needs_a_folder(tmp_path: Path) -> None:
    assert ServerOptions(state=tmp_path, prefix_cache_bytes=1).prefix_cache_bytes == 1
    with pytest.raises(InputError, match="prefix_cache_bytes needs a folder"):
        ServerOptions(prefix_cache_bytes=1)
