"""What an option is: a field of a dataclass, annotated with its range, its help and its flags.

    top_k: Annotated[int, Option("Draw from the k best tokens.", ("--top-k",), low=0)] = 40

is all that is written of an option. The check of its value, the parameters of the command line
(trinity.cli.options) and the tables of docs/options.md (options_table.py) follow from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

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


@dataclass(frozen=True, slots=True)
class Option:
    """What is declared of an option beside its name, type and default.

    ``help`` is one line. ``flags`` are those of the command line; without any, the option is one
    of the API alone. ``low``, ``high`` and ``above`` (a lower bound that is not allowed itself)
    bound a number, ``choices`` a text. Where these do not say it, ``check`` (name, value) returns
    the value to use or raises InputError, and ``values`` says in words what it lets through.
    ``read`` (flag, text) makes a value of the command line's text; of a flag that may be repeated
    (``repeated``) it gets the list of texts. ``none`` is the number that stands for None there.
    """

    help: str
    flags: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    above: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[str, object], object] | None = None
    values: str | None = None
    read: Callable[[str, Any], object] | None = None
    repeated: bool = False
    metavar: str | None = None
    none: int | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """An option with the name, the type and the default of its field."""

    name: str
    type: Any
    default: object
    option: Option

    @property
    def optional(self) -> bool:
        """Whether None is allowed, and means that the engine decides."""
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
        """The values that are allowed, in words."""
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
        """The value to use. Raises: InputError of this option for a wrong value."""
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
    """The options that a dataclass declares, in order."""
    hints = get_type_hints(holder, include_extras=True)
    return tuple(
        Declared(field.name, get_args(hints[field.name])[0], field.default, extra)
        for field in fields(holder)
        for extra in getattr(hints[field.name], "__metadata__", ())
        if isinstance(extra, Option)
    )


def check_options(options: Any) -> None:
    """Check every option of a dataclass's instance, and put the values to use in their place.

    For ``__post_init__``. Raises InputError.
    """
    holder: type = type(options)
    for one in declared(holder):
        object.__setattr__(options, one.name, one.checked(getattr(options, one.name)))


def check_option(holder: type, name: str, value: object) -> Any:
    """The value to use for one option of a dataclass. Raises InputError."""
    (one,) = (one for one in declared(holder) if one.name == name)
    return one.checked(value)
