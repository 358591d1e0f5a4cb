"""plain_words.py parses command lines as typer does, and leaves errors other than numbers to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import typer.main

from trinity.cli.application import application, for_typer
from trinity.cli.commands import COMMANDS, command_of
from trinity.cli.parameters import Argument, BadParameter, Flag, Parameter, parameters_of
from trinity.cli.plain_words import read

VALUES = {str: "two words", int: "3", float: "0.5"}


class Recorder:
    """A command with another's parameters that records its arguments."""

    def __init__(self, command: Callable[..., None]) -> None:
        self.seen: Any = None
        self.__name__ = "recorder"
        self.__signature__ = inspect.signature(command, eval_str=True)
        self.run = typer.main.get_command(_typer_of(self))

    def __call__(self, **values: Any) -> None:
        self.seen = values

    def by_typer(self, words: list[str]) -> dict[str, Any]:
        self.run(words, standalone_mode=False)
        return self.seen  # type: ignore[no-any-return]


def _typer_of(command: Callable[..., None]) -> typer.Typer:
    app = typer.Typer()
    app.command()(for_typer(command))
    return app


def value_of(one: Parameter) -> str:
    low = one.declared.min if isinstance(one.declared, Flag) else None
    return VALUES.get(one.kind, "x") if low is None else str(max(low, 1))


def lines(parameters: list[Parameter]) -> list[list[str]]:
    """Yield command lines without options, with each option in each form, and with all of them."""
    needed = [
        value_of(one) for one in parameters if one.required and isinstance(one.declared, Argument)
    ]
    base = [
        word for one in parameters if one.required and isinstance(one.declared, Flag)
        for word in (one.declared.flags[0], value_of(one))
    ]  # fmt: skip
    alone: list[list[str]] = []
    for one in parameters:
        if isinstance(one.declared, Argument):
            continue
        for flags in one.declared.flags:
            for flag in flags.split("/"):
                if one.kind is bool:
                    alone.append([flag])
                else:
                    alone.append([flag, value_of(one)] * (2 if one.many else 1))
                    if flag.startswith("--"):
                        alone.append([f"{flag}={value_of(one)}"])
    together = [word for words in alone for word in words]
    return [
        [*base, *needed],
        *([*base, *words, *needed] for words in alone),
        [*needed, *together],
        [*together, "--", *needed],
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_same_values_as_typer(name: str) -> None:
    recorder = Recorder(command_of(name))
    for words in lines(list(parameters_of(recorder))):
        assert read(recorder, words) == recorder.by_typer(words), words


@pytest.mark.parametrize(
    "words",
    [
        ["--no-such-option"], ["--model"], ["-m"], ["-n", "-x"], ["-n", "1_000"],
        ["--temp", "1e-3"], ["one", "two"], ["--help"], ["-h"], ["--quiet=1"], ["-ngl", "9"],
        ["--temp=nan"],
    ],
)  # fmt: skip
def test_what_is_wrong_or_rare_is_left_to_typer(words: list[str]) -> None:
    assert read(command_of("generate"), words) is None


def test_a_missing_argument_is_left_to_typer() -> None:
    assert read(command_of("quantize"), ["only-one"]) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("generate -n many", "--max-tokens is 'many'; it must be an integer"),
        ("generate --seed=1.5", "--seed is '1.5'; it must be an integer"),
        ("generate --temp warm", "--temperature is 'warm'; it must be a finite number"),
        ("perplexity --ctx=-4", "--ctx is -4; it must be an integer of at least 4"),
        ("rank -m m --top 0 q a", "--top is 0; it must be an integer of at least 1"),
        (
            "batch --at-once 999 -m m in out",
            "--at-once is 999; it must be an integer from 1 to 256",
        ),
    ],
)
def test_a_wrong_number_is_shown_with_what_is_allowed(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *rest = words.split()
    with pytest.raises(BadParameter) as caught:
        read(command_of(name), rest)
    assert str(caught.value) == message
    with pytest.raises(SystemExit):
        application((name,), caught.value)([name, *rest])
    shown = capsys.readouterr().err
    assert "Usage: " in shown
    assert f"Error: Invalid value: {message}" in shown
