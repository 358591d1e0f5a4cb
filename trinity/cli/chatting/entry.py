"""What a typed, pasted or piped text is: a message, or a command with what follows it."""

from __future__ import annotations

import re
from dataclasses import dataclass

QUOTES = '"""'
_OPENING = re.compile(rf"[ \t]*(/[^\W\d_][\w-]*)?[ \t]*{QUOTES}")
_COMMAND = re.compile(r"\s*/([^\W\d_][\w-]*|\?|)(?:\s+(.*))?\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ChatEntry:
    """A message, where ``command`` is None, or the name of a command and the text behind it."""

    command: str | None
    text: str


def is_open(text: str) -> bool:
    """Whether a block has begun that has not ended yet."""
    opening = _OPENING.match(text)
    return opening is not None and QUOTES not in text[opening.end() :]


def read_entry(text: str) -> ChatEntry:
    '''What a whole text is.

    A command is a word behind a slash. What stands between two marks """ is taken as it is,
    without the line feeds next to them, be it a message or the text behind a command. A text that
    goes on after the second mark is no block: the marks are its own.
    '''
    opening = _OPENING.match(text)
    if opening is not None:
        content, closing, rest = text[opening.end() :].partition(QUOTES)
        if closing and not rest.strip():
            command = opening[1]
            inner = content.removeprefix("\n").removesuffix("\n")
            return ChatEntry(None if command is None else command[1:], inner)
    found = _COMMAND.fullmatch(text)
    if found is not None:
        return ChatEntry(found[1], (found[2] or "").strip())
    return ChatEntry(None, text.strip("\r\n"))
