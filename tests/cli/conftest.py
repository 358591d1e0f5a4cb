"""Fixtures of the command line: its models are toys."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.toy_model import ToyEngine, ToyTokenizer
from trinity.cli.application import application
from trinity.model import Model

Run = Callable[..., Result]


def press_ctrl_c() -> None:
    """Interrupt the main thread as Ctrl-C does; it may take another step before it notices."""
    handler = signal.getsignal(signal.SIGINT)
    assert callable(handler)
    handler(signal.SIGINT, None)


@pytest.fixture
def tokenizer() -> ToyTokenizer:
    """The tokenizer of the model that commands load."""
    return ToyTokenizer()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tokenizer: ToyTokenizer) -> ToyEngine:
    """The engine of the model that commands load: a prompt of two characters gets "hello".

    ``engine.loads`` are the paths and options that models were loaded with.
    """
    toy = ToyEngine(context_length=256)
    toy.says("hello", after=3)

    def load(path: str, **options: Any) -> Model:
        options.pop("progress")("compiling kernels 3/14")
        toy.loads.append((path, options))
        toy.closed = False
        return Model(toy, tokenizer)  # type: ignore[arg-type]

    monkeypatch.setattr("trinity.loading.load", load)
    monkeypatch.setattr("trinity.loading.load_tokenizer", lambda path, **options: tokenizer)
    return toy


@pytest.fixture
def run() -> Run:
    """Run the command line in this process: result has exit_code, stdout and stderr."""

    def invoke(*arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(application(), list(arguments), input=input)

    return invoke
