"""Parse typed, pasted or piped text: a message, or a command with its argument."""

from __future__ import annotations

import re
from dataclasses import dataclass

QUOTES = '"""'
_OPENING = re.compile(rf"[ \t]*(/[^\W\d_][\w-]*)?[ \t]*{QUOTES}")
_COMMAND = re.compile(r"\s*/([^\W\d_][\w-]*|\?|)(?:\s+(.*))?\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ChatInput:
    """A message if ``command`` is None, or a command; ``text`` is then its argument."""

    command: str | None
    text: str


def is_open(text: str) -> bool:
    """Whether a block has begun but not ended yet."""
    opening = _OPENING.match(text)
    return opening is not None and QUOTES not in text[opening.end() :]


def read_input(text: str) -> ChatInput:
    '''Parse a complete input.

    A command is a word after a slash. Text between two marks """ is taken literally, without the
    line feeds next to the marks, both as a message and as an argument. If text follows the second
    mark, there is no block, and the marks belong to the text.
    '''
    opening = _OPENING.match(text)
    if opening is not None:
        content, closing, rest = text[opening.end() :].partition(QUOTES)
        if closing and not rest.strip():
            command = opening[1]
            inner = content.removeprefix("\n").removesuffix("\n")
            return ChatInput(None if command is None else command[1:], inner)
    match = _COMMAND.fullmatch(text)
    if match is not None:
        return ChatInput(match[1], (match[2] or "").strip())
    return ChatInput(None, text.strip("\r\n"))
