"""The places where models are kept."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty places; none is the user's."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("TRINITY_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path
