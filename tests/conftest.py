"""Fixtures that every test folder shares, and which tests `make test` leaves out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix import each_value_once
from trinity.confined import Confined
from trinity.tokenizers.huggingface import reference

SIGNALS = {
    getattr(signal, name): signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    for name in ("SIGINT", "SIGHUP", "SIGQUIT")
    if hasattr(signal, name)
}
MOST_KEPT = 300_000_000  # bytes of memory
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real models, vocabularies and golden results; skips where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"needs the reference data in {SHARED_DATA}")
    return SHARED_DATA


class Kept(Confined):
    """A process that goes on to whoever asks next."""

    def close(self) -> None:
        pass


@pytest.fixture(scope="session", autouse=True)
def _libraries_answer_in_one_process() -> Iterator[None]:
    """To start the process that reads a tokenizer's file takes ten times as long as to ask it."""
    kept: dict[str, Confined] = {}

    def confined(module: str, *, memory_bytes: int, seconds: float) -> Confined:
        if memory_bytes > MOST_KEPT:
            return Confined(module, memory_bytes=memory_bytes, seconds=seconds)
        if module not in kept:
            kept[module] = Kept(module, memory_bytes=MOST_KEPT, seconds=seconds)
        return kept[module]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "Confined", confined)
        yield
    for one in kept.values():
        Confined.close(one)


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
