"""Fixtures that every test folder shares."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real models, vocabularies and golden results; skips where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the reference data in {SHARED_DATA}")
    return SHARED_DATA
