"""Collect the parts of a response until they are returned."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from trinity.conversation.cursor import WHITE
from trinity.conversation.parts import CallArguments, CallStart, Part, Reasoning, Text

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class Scribe:
    """Collects parts; white space around calls and reasoning is dropped.

    ``calls`` counts those that began. ``fresh``: no text since the beginning, the last call or the
    last reasoning.
    """

    def __init__(self, id_prefix: str, id_length: int) -> None:
        self.calls = 0
        self.fresh = True
        self._id_prefix, self._id_length = id_prefix, id_length
        self._parts: list[Part] = []
        self._held = ""  # white space that counts if text follows
        self._trim = False  # white space that follows does not count

    def text(self, text: str) -> None:
        """Add text of the response."""
        if text := self._certain(text):
            self.fresh = False
            self._parts.append(Text(text))

    def reasoning(self, text: str) -> None:
        """Add reasoning."""
        if text := self._certain(text):
            self._parts.append(Reasoning(text))

    def turn(self) -> None:
        """Mark a change between reasoning, text and calls: white space here is dropped."""
        self._held, self._trim, self.fresh = "", True, True

    def call(self, name: str) -> None:
        """Begin a tool call."""
        self.turn()
        made = "".join(secrets.choice(_LETTERS) for _ in range(self._id_length))
        self._parts.append(CallStart(self.calls, self._id_prefix + made, name))
        self.calls += 1

    def arguments(self, text: str) -> None:
        """Add to the newest call's arguments."""
        self._parts.append(CallArguments(self.calls - 1, text))

    def end(self) -> None:
        """End the response: white space at the end of a text is part of it."""
        if not self._trim and self._held:
            self._parts.append(Text(self._held))
            self._held = ""

    def take(self) -> tuple[Part, ...]:
        """Return the parts since the last time."""
        parts, self._parts = joined(self._parts), []
        return parts

    def _certain(self, text: str) -> str:
        if self._trim:
            text = text.lstrip(WHITE)
            self._trim = not text
        text = self._held + text
        kept = text.rstrip(WHITE)
        self._held = text[len(kept) :]
        return kept


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Join adjacent parts that belong together."""
    out: list[Part] = []
    for part in parts:
        last = out[-1] if out else None
        if isinstance(part, Text) and isinstance(last, Text):
            out[-1] = Text(last.text + part.text)
        elif isinstance(part, Reasoning) and isinstance(last, Reasoning):
            out[-1] = Reasoning(last.text + part.text)
        elif isinstance(part, CallArguments) and isinstance(last, CallArguments):
            out[-1] = CallArguments(last.index, last.text + part.text)
        else:
            out.append(part)
    return tuple(out)
