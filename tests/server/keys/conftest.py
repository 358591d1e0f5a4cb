"""Fixtures: servers with two API keys, new for each test."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import trinity
from tests.models.adapter_files import peft_directory
from tests.runtime.test_adapters import HIDDEN, pairs_of
from tests.server.keys.two_keys import Make, Server
from tests.tiny_models import write_tiny_model
from trinity.model import Model
from trinity.server.app import make_app
from trinity.server.batches.batch_queue import BatchQueue
from trinity.server.models import Models
from trinity.server.served import Served
from trinity.server.settings import ServerOptions


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A tiny model with two adapters, of which the first is active."""
    folder = tmp_path_factory.mktemp("keys")
    write_tiny_model(folder / "m.gguf", type="F32", hidden_size=HIDDEN, context_length=1024)
    for seed in (1, 2):
        peft_directory(folder / str(seed), pairs_of(seed))
    lora = [(folder / "1", 1.0), (folder / "2", 0.0)]
    with trinity.load(folder / "m.gguf", lora=lora, threads=1, batch_invariant=True) as model:
        yield model


Serve = Callable[..., AbstractContextManager[Server]]


async def nothing(*given: object) -> None:
    """Do nothing; replaces functions that must not run."""


@pytest.fixture
def serve(adapted: Model, tmp_path: Path) -> Serve:
    """Run a server with two keys in a folder; both are new unless given.

    ``make`` is called with the server. Batches wait forever unless ``answers`` is true.
    """

    @contextmanager
    def served(
        make: Make = lambda server: None, *, keys: dict[str, str] | None = None,
        folder: Path | None = None, answers: bool = False, **options: Any,
    ) -> Iterator[Server]:  # fmt: skip
        keys = keys or {name: secrets.token_urlsafe(16) for name in "AB"}
        folder = folder or tmp_path / secrets.token_hex(4)
        (folder / "slots").mkdir(parents=True, exist_ok=True)
        models = Models([Served("demo", "", lambda: adapted, model=adapted)])
        models.close = nothing  # type: ignore[method-assign]
        settings = ServerOptions(
            api_key=tuple(keys.values()), state=folder, slot_save_path=folder / "slots", **options
        )
        with pytest.MonkeyPatch.context() as patch:
            if not answers:
                patch.setattr(BatchQueue, "run", nothing)
            with TestClient(make_app(models, settings), base_url="http://localhost") as client:
                server = Server(client, keys)
                make(server)
                yield server

    return served
