"""The servers that client programs ask: `make test-clients` installs the programs and runs them.

No test here installs anything. A script whose packages are not installed skips.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients import servers
from tests.conftest import GetModel


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory, real_model: GetModel) -> Iterator[str]:
    """The address of ``trinity serve`` with default settings."""
    for name in ("smollm2", "minilm"):
        real_model(name)
    with servers.serve(tmp_path_factory.mktemp("serve") / "log") as url:
        yield url


@pytest.fixture(scope="session")
def scripted_url(tmp_path_factory: pytest.TempPathFactory, real_model: GetModel) -> Iterator[str]:
    """The address of a server whose model writes the texts of script.json."""
    real_model("smollm2")
    folder = tmp_path_factory.mktemp("scripted")
    with servers.serve_scripted(folder / "log", folder) as url:
        yield url
