"""Fixtures that every test folder shares, and which tests `make test` leaves out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix import each_value_once

SIGNALS = {
    getattr(signal, name): signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    for name in ("SIGINT", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
}
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real models, vocabularies and golden results; skips where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the reference data in {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(autouse=True)
def _usual_signals() -> Iterator[None]:
    """Signals that whoever runs the tests ignores, as nohup and `&` do, end processes as usual."""
    ignored = [name for name in SIGNALS if signal.getsignal(name) is signal.SIG_IGN]
    for name in ignored:
        signal.signal(name, SIGNALS[name])
    yield
    for name in ignored:
        signal.signal(name, signal.SIG_IGN)


@pytest.hookimpl(tryfirst=True)  # before -m "not full" is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves to `make test-all`."""
    each_value_once(items)
