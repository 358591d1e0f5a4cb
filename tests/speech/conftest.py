from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import trinity


@pytest.fixture(scope="session")
def folder(shared_data: Path) -> Path:
    """A small random model, and what transformers transcribes with it."""
    return shared_data / "encoders" / "whisper"


@pytest.fixture(scope="module")
def model(folder: Path) -> Iterator[trinity.SpeechModel]:
    with trinity.SpeechModel(folder / "hf", threads=1) as loaded:
        yield loaded
