"""Options are fields of dataclasses, annotated with their range, help and flags.

    top_k: Annotated[int, Option("Draw from the k best tokens.", low=0)] = 40

is the whole declaration of an option, whose flag is --top-k. The check of its value, the parameters
of the command line (trinity.cli.options) and the tables of docs/options.md (options_table.py) are
derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from trinity.errors import InputError
from trinity.options.checks import (
    check_bool,
    check_choice,
    check_integer,
    check_number,
    check_text,
    integers,
    numbers,
)

NAMED: Final = ("--",)  # the flag is the option's name, with "-" instead of "_"
API_ONLY: Final = ()  # the command line does not have the option


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an option besides its name, type and default."""

    help: str  # one line
    flags: tuple[str, ...] = NAMED
    low: float = -math.inf  # inclusive bounds of a number
    high: float = math.inf
    above: float | None = None  # exclusive lower bound of a number
    choices: tuple[str, ...] = ()  # the allowed texts
    # Takes name and value, returns the value to use or raises InputError. Replaces other checks.
    check: Callable[[str, object], object] | None = None
    values: str | None = None  # describes what ``check`` accepts
    # Makes a value from flag and text; from flag and list of texts if ``repeated``.
    read: Callable[[str, Any], object] | None = None
    repeated: bool = False  # whether the flag may be repeated
    metavar: str | None = None
    none: int | None = None  # the number that means None on the command line


def path(help: str, metavar: str, *flags: str) -> Option:
    """A file or a folder."""
    return Option(help, flags or NAMED, values="a path", metavar=metavar)


@dataclass(frozen=True, slots=True)
class Declared:
    """An option with the name, the type and the default of its field."""

    name: str
    type: Any
    default: object
    option: Option

    @property
    def optional(self) -> bool:
        """Whether None is allowed; the engine then decides."""
        return type(None) in get_args(self.type)

    @property
    def kind(self) -> Any:
        """The type without None."""
        if get_origin(self.type) in (Union, UnionType) and self.optional:
            left = [part for part in get_args(self.type) if part is not type(None)]
            return left[0] if len(left) == 1 else Union[tuple(left)]  # noqa: UP007
        return self.type

    @property
    def values(self) -> str:
        """Describe the allowed values."""
        option = self.option
        if option.values is not None:
            return option.values
        if option.choices:
            return " or ".join(option.choices)
        if self.kind is int:
            return integers(*self._bounds)
        if self.kind is float:
            return numbers(option.low, option.high, option.above)
        return "True or False" if self.kind is bool else "text"

    @property
    def _bounds(self) -> tuple[int | None, int | None]:
        low, high = self.option.low, self.option.high
        return None if low == -math.inf else int(low), None if high == math.inf else int(high)

    def checked(self, value: object) -> object:
        """Return the value to use. Raises InputError, which names the option."""
        try:
            return self._checked(value)
        except InputError as error:
            error.option = self.name
            raise

    def _checked(self, value: object) -> object:
        option, name = self.option, self.name
        if value is None and self.optional:
            return None
        if option.check is not None:
            return option.check(name, value)
        if option.choices:
            return check_choice(name, value, option.choices)
        if self.kind is int:
            return check_integer(name, value, *self._bounds)
        if self.kind is float:
            return check_number(name, value, option.low, option.high, option.above)
        if self.kind is bool:
            return check_bool(name, value)
        return check_text(name, value) if self.kind is str else value


@cache
def declared(holder: type) -> tuple[Declared, ...]:
    """Return the options that a dataclass declares, in order."""
    hints = get_type_hints(holder, include_extras=True)
    return tuple(
        Declared(
            field.name, get_args(hints[field.name])[0], field.default, _flagged(extra, field.name)
        )
        for field in fields(holder)
        for extra in getattr(hints[field.name], "__metadata__", ())
        if isinstance(extra, Option)
    )


def _flagged(option: Option, name: str) -> Option:
    """The option with the flags that the command line shows."""
    if option.flags != NAMED:
        return option
    return replace(option, flags=(f"--{name.replace('_', '-')}",))


def check_options(options: Any) -> None:
    """Check every option of a dataclass instance and store the values to use.

    Call it in ``__post_init__``. Raises InputError.
    """
    holder: type = type(options)
    for option in declared(holder):
        value = getattr(options, option.name)
        if value is not option.default:
            object.__setattr__(options, option.name, option.checked(value))


def check_option(holder: type, name: str, value: object) -> Any:
    """Return the value to use for one option of a dataclass. Raises InputError."""
    (option,) = (option for option in declared(holder) if option.name == name)
    return option.checked(value)
