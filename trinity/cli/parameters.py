"""Declares the arguments and flags of a command, without importing typer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin


class Flag:
    """An option: its flags and, after "/", those that switch it off.

    If no flag is given, it is the parameter's name, with "-" instead of "_".
    """

    def __init__(
        self,
        help: str,
        *flags: str,
        metavar: str | None = None,
        min: int | None = None,
        max: int | None = None,
        show_default: bool = True,
    ) -> None:
        self.help = help
        self.flags = flags
        self.metavar = metavar
        self.min, self.max = min, max
        self.show_default = show_default

    def of(self, name: str) -> Flag:
        """The flag of the parameter of this name."""
        if self.flags:
            return self
        found = copy(self)
        found.flags = (f"--{name.replace('_', '-')}",)
        return found


class Argument:
    """A word without a flag; a list takes all that are left."""

    def __init__(self, help: str, *, metavar: str | None = None, show_default: bool = True) -> None:
        self.help = help
        self.metavar = metavar
        self.show_default = show_default


class BadParameter(Exception):  # noqa: N818
    """Wrong usage; ``param_hint`` names the parameter."""

    def __init__(self, message: str, param_hint: str | None = None) -> None:
        super().__init__(message)
        self.param_hint = param_hint


class Exit(Exception):  # noqa: N818
    """The command ends with this status."""

    def __init__(self, code: int = 0) -> None:
        super().__init__(code)
        self.code = code


class Given(frozenset[str]):
    """The names of the parameters that the command line gave; a command may have one ``given``."""


GIVEN = inspect.Parameter("given", inspect.Parameter.KEYWORD_ONLY, annotation=Given)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a command."""

    name: str
    kind: type  # str, int, float, bool or Path
    many: bool  # a list of ``kind``
    default: Any
    required: bool
    declared: Flag | Argument


def parameters_of(command: Callable[..., None]) -> Iterator[Parameter]:
    """Return the parameters that the signature of a command declares, without ``given``."""
    for own in inspect.signature(command, eval_str=True).parameters.values():
        if own.annotation is Given:
            continue
        kind, declared = get_args(own.annotation)
        if get_origin(kind) in (Union, UnionType):
            (kind,) = (member for member in get_args(kind) if member is not NoneType)
        many = get_origin(kind) is list
        if many:
            (kind,) = get_args(kind)
        if isinstance(declared, Flag):
            declared = declared.of(own.name)
        required = own.default is inspect.Parameter.empty
        yield Parameter(own.name, kind, many, None if required else own.default, required, declared)


def takes_given(command: Callable[..., None]) -> bool:
    """Whether the command wants the names of what was given."""
    return GIVEN.name in inspect.signature(command).parameters
