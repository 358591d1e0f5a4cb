"""Fixtures of the runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.family_engines import CONTEXT, ROWS, Load
from trinity.providers import open_weights
from trinity.runtime import engine_building as module
from trinity.runtime.engine import CPUEngine
from trinity.runtime.engine_building import load_engine
from trinity_kernels.isa import available_levels


@pytest.fixture(params=available_levels())
def level(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def load(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Return a function that loads the engine of a family, with ``rows`` rows in a step."""
    with ExitStack() as stack:

        def loaded(family: str, rows: int = ROWS, **options: Any) -> CPUEngine:
            monkeypatch.setattr(module, "PREFILL_CHUNK", rows)
            provider = open_weights(shared_data / "architectures" / family / "model.gguf")
            stack.callback(provider.close)
            options = {"batch_invariant": True, "threads": 2, **options}
            engine = load_engine(provider, context_length=CONTEXT, **options)
            stack.callback(engine.close)
            return engine

        yield loaded
