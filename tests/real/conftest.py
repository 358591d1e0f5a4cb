"""Tests on published models: `make test-real` installs the models and runs them.

No test here downloads anything. A test whose model is not installed skips.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import real_models

HERE = Path(__file__).parent
GetModel = Callable[[str], Path]


@pytest.fixture(scope="session")
def real_model() -> GetModel:
    """A function from a name of scripts/real_models.py to the path that the model loads from."""

    def path(name: str) -> Path:
        if not real_models.folder_of(name).is_dir():
            pytest.skip(f"{name} is not installed: python scripts/real_models.py {name}")
        return real_models.path_of(name)

    return path


@pytest.hookimpl(tryfirst=True)  # before -m is evaluated
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder as `real`, which `make test` and `make test-all` leave out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.real)
