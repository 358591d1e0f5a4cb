"""What an answer is made of once a model's marks are read: text, reasoning, calls of tools."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of the tool ``name`` begins, the answer's call number ``index`` from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text of a call's arguments; together they are one object."""

    index: int
    text: str


Part = Text | Reasoning | CallStart | CallArguments
