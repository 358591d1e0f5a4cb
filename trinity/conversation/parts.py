"""The parts of a parsed response: text, reasoning, tool calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the response's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The beginning of a call of the tool ``name``; ``index`` counts the calls from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text of a call's arguments; together they are one object."""

    index: int
    text: str


Part = Text | Reasoning | CallStart | CallArguments


def continues(part: Part, item: object, text: type, reasoning: type) -> bool:
    """Return whether a part is more of the open ``item`` of a response.

    ``text`` and ``reasoning`` are the classes of items with these contents.
    """
    if isinstance(part, Text):
        return isinstance(item, text)
    if isinstance(part, Reasoning):
        return isinstance(item, reasoning)
    return isinstance(part, CallArguments)
