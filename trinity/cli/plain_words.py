"""Command lines without mistakes, read in milliseconds; typer takes longer than the demo model.

It reads what every command line has: options with values, switches, words. All else, above all
what is wrong, it leaves to typer, which reads the same declarations and explains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trinity.cli.parameters import (
    GIVEN,
    Argument,
    Flag,
    Given,
    Parameter,
    parameters_of,
    takes_given,
)  # fmt: skip

_NUMBERS = {
    int: re.compile(r"-?[0-9]{1,15}", re.ASCII),
    float: re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", re.ASCII),
}


class _Left(Exception):  # noqa: N818
    """The words are left to typer."""


def read(command: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments that a command is called with; None for words that are left to typer."""
    parameters = list(parameters_of(command))
    flags = dict(pair for one in parameters for pair in _flags(one))
    given_values: dict[str, list[Any]] = {}
    alone: list[str] = []
    rest = iter(words)
    try:
        for word in rest:
            if word == "--":
                alone += rest
            elif word.startswith("-") and word != "-":
                _read_option(word, rest, flags, given_values)
            else:
                alone.append(word)
        _place(alone, parameters, given_values)
        values = {one.name: _value(one, given_values.get(one.name, [])) for one in parameters}
    except _Left:
        return None
    return values | ({GIVEN.name: Given(given_values)} if takes_given(command) else {})


def _flags(one: Parameter) -> Iterator[tuple[str, tuple[Parameter, bool]]]:
    """Each flag with its parameter, and what a switch becomes."""
    for flag in getattr(one.declared, "flags", ()):
        on, _, off = flag.partition("/")
        yield on, (one, True)
        if off:
            yield off, (one, False)


def _read_option(
    word: str, rest: Iterator[str], flags: dict[str, tuple[Parameter, bool]],
    given_values: dict[str, list[Any]],
) -> None:  # fmt: skip
    flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
    if flag not in flags:
        raise _Left
    one, switched = flags[flag]
    values = given_values.setdefault(one.name, [])
    if one.kind is bool:
        if equals:
            raise _Left
        values.append(switched)
        return
    if not equals:
        value = next(rest, "-")
        if value.startswith("-"):  # the value is missing, or a negative number
            raise _Left
    values.append(value)


def _place(
    alone: list[str], parameters: list[Parameter], given_values: dict[str, list[Any]]
) -> None:
    """Give the words without flags to the arguments in order."""
    for one in parameters:
        if isinstance(one.declared, Argument) and alone:
            count = len(alone) if one.many else 1
            given_values[one.name], alone[:count] = alone[:count], []
    if alone:
        raise _Left


def _value(one: Parameter, given: list[Any]) -> Any:
    if not given:
        if one.required:
            raise _Left
        return one.default
    values = [_converted(one, value) for value in given]
    return values if one.many else values[-1]


def _converted(one: Parameter, value: Any) -> Any:
    if one.kind not in _NUMBERS:
        return value if one.kind is bool else one.kind(value)
    if _NUMBERS[one.kind].fullmatch(value) is None:
        raise _Left
    number = one.kind(value)
    declared = one.declared
    if isinstance(declared, Flag) and (
        (declared.min is not None and number < declared.min)
        or (declared.max is not None and number > declared.max)
    ):
        raise _Left
    return number
