"""Fixtures that every test folder shares, and which tests `make test` leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix import each_value_once

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real models, vocabularies and golden results; skips where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the reference data in {SHARED_DATA}")
    return SHARED_DATA


@pytest.hookimpl(tryfirst=True)  # before -m "not full" is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves to `make test-all`."""
    each_value_once(items)
