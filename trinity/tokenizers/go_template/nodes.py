"""The tree of a Go template: statements, pipelines and their parts.

Source: Go's text/template/parse/node.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(slots=True)
class Literal:
    """A string, a number, true or false."""

    value: str | int | float | bool


@dataclass(slots=True)
class Dot:
    """``.``, the current value."""


@dataclass(slots=True)
class Nil:
    """The word nil."""


@dataclass(slots=True)
class FieldNode:
    """``.A.B``: nested fields of the dot."""

    names: list[str]


@dataclass(slots=True)
class Variable:
    """``$x.A``: a variable and fields of it."""

    name: str
    names: list[str]


@dataclass(slots=True)
class Chain:
    """``(pipeline).A.B``: fields of a pipeline's value."""

    of: Operand
    names: list[str]


@dataclass(slots=True)
class FunctionNode:
    """The name of a function."""

    name: str


@dataclass(slots=True)
class Pipe:
    """Commands; each one gets the value of the previous one as its last argument."""

    line: int
    declared: list[str] = field(default_factory=list)
    assigns: bool = False
    commands: list[list[Operand]] = field(default_factory=list)


Operand: TypeAlias = Literal | Dot | Nil | FieldNode | Variable | Chain | FunctionNode | Pipe


@dataclass(slots=True)
class TextNode:
    """Text that is written unchanged."""

    text: str


@dataclass(slots=True)
class Action:
    """A pipeline whose value is written, unless it goes into a variable."""

    pipe: Pipe


@dataclass(slots=True)
class Branch:
    """``if``, ``with`` or ``range`` (``kind``), with the body after ``else``, if any."""

    kind: str
    pipe: Pipe
    body: Body
    otherwise: Body | None


@dataclass(slots=True)
class CallNode:
    """``template "name" pipeline``."""

    name: str
    pipe: Pipe


@dataclass(slots=True)
class Leave:
    """``break`` or ``continue`` (``kind``)."""

    kind: str


Statement: TypeAlias = TextNode | Action | Branch | CallNode | Leave
Body: TypeAlias = list[Statement]


@dataclass(slots=True)
class Tree:
    """A parsed template: its body, and the templates that it defines by name."""

    body: Body
    defined: dict[str, Body]
