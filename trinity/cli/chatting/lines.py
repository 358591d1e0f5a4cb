"""Read entries as lines, from a pipe or from a terminal without line editing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Protocol

from trinity.cli.chatting.chat_input import QUOTES, is_open
from trinity.cli.interrupt import raising
from trinity.cli.prompts import decoded
from trinity.cli.terminal import say
from trinity.errors import InputError

PROMPT, CONTINUATION = "> ", "... "


class LineSource(Protocol):
    """A source of entries."""

    def read(self) -> str:
        """Return the next entry.

        Raises EOFError after the last one, KeyboardInterrupt on Ctrl-C.
        """
        ...


def entries(source: LineSource) -> Iterator[str]:
    """Yield entries to the end. Raises KeyboardInterrupt at a second Ctrl-C in a row."""
    interrupted = False
    while True:
        try:
            text = source.read()
        except EOFError:
            return
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            say("(press Ctrl-C again or Ctrl-D to quit)")
            continue
        interrupted = False
        yield text


class LineReader:
    """Entries from standard input; a block, or a backslash at the end, continues an entry.

    ``prompts``: print a prompt to standard error, because it is a terminal.
    """

    def __init__(self, *, prompts: bool) -> None:
        self._prompts = prompts

    def read(self) -> str:
        """Return the next entry.

        Raises as ``LineSource.read``; InputError for a block that does not end.
        """
        lines: list[str] = []
        block = False
        while True:
            line = self._line(CONTINUATION if lines else PROMPT)
            if line is None:
                if self._prompts or not lines:
                    raise EOFError
                if block:
                    raise InputError(f"the input ends within a block: a second {QUOTES} is missing")
                return "\n".join(lines)
            block = QUOTES not in line if block else not lines and is_open(line)
            goes_on = not block and line.endswith("\\")
            lines.append(line[:-1] if goes_on else line)
            if not block and not goes_on:
                return "\n".join(lines)

    def _line(self, prompt: str) -> str | None:
        """Return the next line without its end, or None."""
        try:
            with raising() if self._prompts else nullcontext():
                if self._prompts:
                    say(prompt, end="")
                data = sys.stdin.buffer.readline()
        except KeyboardInterrupt:
            say()
            raise
        if not data:
            if self._prompts:
                say()
            return None
        if self._prompts:
            return data.decode("utf-8", "replace").rstrip("\r\n")
        return decoded(data, "standard input").rstrip("\r\n")
