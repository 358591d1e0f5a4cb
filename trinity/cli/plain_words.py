"""A fast parser of correct command lines; importing typer takes longer than running the demo model.

It supports options with values, switches and arguments, and explains wrong numbers. Everything
else, such as an unknown option, is left to typer, which uses the same declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trinity.cli.parameters import (
    GIVEN,
    Argument,
    BadParameter,
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
    """The arguments that a command is called with; None for words that are left to typer.

    Raises BadParameter for a number that is malformed or out of range.
    """
    parameters = list(parameters_of(command))
    flags = dict(pair for parameter in parameters for pair in _flags(parameter))
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
        values = {p.name: _value(p, given_values.get(p.name, [])) for p in parameters}
    except _Left:
        return None
    return values | ({GIVEN.name: Given(given_values)} if takes_given(command) else {})


def _flags(parameter: Parameter) -> Iterator[tuple[str, tuple[Parameter, bool]]]:
    """Each flag with its parameter, and the value that it sets if it is a switch."""
    for flag in getattr(parameter.declared, "flags", ()):
        on, _, off = flag.partition("/")
        yield on, (parameter, True)
        if off:
            yield off, (parameter, False)


def _read_option(
    word: str, rest: Iterator[str], flags: dict[str, tuple[Parameter, bool]],
    given_values: dict[str, list[Any]],
) -> None:  # fmt: skip
    flag, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
    if flag not in flags:
        raise _Left
    parameter, switched = flags[flag]
    values = given_values.setdefault(parameter.name, [])
    if parameter.kind is bool:
        if equals:
            raise _Left
        values.append(switched)
        return
    if not equals:
        value = next(rest, "-")
        is_number = parameter.kind in _NUMBERS and value[1:2].isdecimal()
        if value.startswith("-") and not is_number:
            raise _Left  # the value is missing
    values.append(value)


def _place(
    alone: list[str], parameters: list[Parameter], given_values: dict[str, list[Any]]
) -> None:
    """Give the words without flags to the arguments in order."""
    for parameter in parameters:
        if isinstance(parameter.declared, Argument) and alone:
            count = len(alone) if parameter.many else 1
            given_values[parameter.name], alone[:count] = alone[:count], []
    if alone:
        raise _Left


def _value(parameter: Parameter, given: list[Any]) -> Any:
    if not given:
        if parameter.required:
            raise _Left
        return parameter.default
    values = [_converted(parameter, value) for value in given]
    return values if parameter.many else values[-1]


def _converted(parameter: Parameter, value: Any) -> Any:
    if parameter.kind not in _NUMBERS:
        return value if parameter.kind is bool else parameter.kind(value)
    declared = parameter.declared
    low, high = (declared.min, declared.max) if isinstance(declared, Flag) else (None, None)
    try:
        number = parameter.kind(value)
    except ValueError:
        raise _wrong(parameter, repr(value)[:40], low, high) from None
    if (low is not None and number < low) or (high is not None and number > high):
        raise _wrong(parameter, str(number), low, high)
    if _NUMBERS[parameter.kind].fullmatch(value) is None:
        raise _Left
    return number


def _wrong(parameter: Parameter, found: str, low: int | None, high: int | None) -> BadParameter:
    """The error for a wrong number."""
    from trinity.options.checks import integers, numbers

    declared = parameter.declared
    flag = declared.flags[0] if isinstance(declared, Flag) else parameter.name.upper()
    allowed = integers(low, high) if parameter.kind is int else numbers()
    return BadParameter(f"{flag} is {found}; it must be {allowed}")
