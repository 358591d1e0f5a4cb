"""A few tokens' logits, computed again and again: /health tells where they change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import trinity
from tests.server.conftest import MakeApp, wait_for
from tests.tiny_models import write_tiny_model
from trinity.model import Model
from trinity.server import canary as module
from trinity.server.canary import Canary, logits_hash
from trinity.server.models import Models, Served


@pytest.fixture
def own() -> Iterator[Model]:
    """A model whose weights may be damaged."""
    with trinity.load(trinity.demo_model(), threads=1) as model:
        yield model


def test_health_says_when_the_models_were_checked(make: MakeApp) -> None:
    with TestClient(make(), base_url="http://localhost") as client:
        wait_for(lambda: client.get("/health").json()["canary_checked"])
        assert client.get("/health").json()["status"] == "ok"


def test_the_hash_is_the_same_beside_and_after_other_work(own: Model) -> None:
    first = logits_hash(own)
    assert own.generate("Prince Andrew", max_tokens=5).token_ids
    assert logits_hash(own) == first


def test_one_changed_weight_changes_it(tmp_path: Path) -> None:
    found = []
    for bit in (0, 4):
        path = tmp_path / f"{bit}.gguf"
        write_tiny_model(path, type="Q4_0")
        data = bytearray(path.read_bytes())
        data[-3000] ^= bit
        path.write_bytes(data)
        with trinity.load(path, threads=1) as model:
            found.append(logits_hash(model))
    assert found[0] != found[1]


@pytest.mark.parametrize("kind", ["bert_mean", "gemma_embedding", "xlm_roberta_rerank"])
def test_an_encoder_is_checked_by_its_states(shared_data: Path, kind: str) -> None:
    with trinity.load(shared_data / "encoders" / kind / "model.gguf", threads=1) as model:
        canary = Canary(Models([Served("encoder", "", lambda: model, model=model)]))
        asyncio.run(canary.look("encoder", model))
        assert canary.checked is not None
        assert canary.differing is None
        first = logits_hash(model)
        model.embed(["a text", "b"])
        assert logits_hash(model) == first


def test_other_logits_make_the_server_ill(own: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served("demo", "", lambda: own, model=own)
    canary = Canary(Models([served]))
    assert (canary.checked, canary.differing) == (None, None)
    asyncio.run(canary.look("demo", own))
    assert canary.checked is not None
    right = module.logits_hash
    monkeypatch.setattr(module, "logits_hash", lambda model: "0" * 32)
    asyncio.run(canary.look("demo", own))
    assert canary.differing is None  # it was not due
    canary._checks["demo"].due = 0
    asyncio.run(canary.look("demo", own))
    assert canary.differing is not None
    assert f"hash {'0' * 32}, not {right(own)}" in canary.differing


def test_a_model_in_use_is_left_alone(own: Model) -> None:
    canary = Canary(Models([Served("demo", "", lambda: own, model=own)]))
    stream = own.stream("Prince Andrew", max_tokens=50, ignore_eos=True)
    next(stream)
    asyncio.run(canary.look("demo", own))
    assert canary.checked is None
    stream.close()
