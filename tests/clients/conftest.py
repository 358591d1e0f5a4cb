"""Real client programs against a real server: `make test-clients` installs and runs them.

No test here installs anything. A script whose packages are not installed skips.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import servers

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of ``trinity serve`` with default settings."""
    if "smol" not in servers.published():
        pytest.skip("smollm2 is not installed: python scripts/real_models.py smollm2 minilm")
    with servers.serve(tmp_path_factory.mktemp("serve") / "log") as url:
        yield url


@pytest.fixture(scope="session")
def scripted_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose model writes the texts of script.json."""
    if "smol" not in servers.published():
        pytest.skip("smollm2 is not installed: python scripts/real_models.py smollm2 minilm")
    folder = tmp_path_factory.mktemp("scripted")
    with servers.serve_scripted(folder / "log", folder) as url:
        yield url


@pytest.hookimpl(tryfirst=True)  # before -m is evaluated
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder as `clients`; only `make test-clients` runs them."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.clients)
