"""Parse a text that arrives in pieces; the result does not depend on how it is split."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A generator that yields when it needs more text than has arrived."""
Give = Callable[[str], None]

WHITE = " \t\r\n"
_LONGEST_NAME = 200
_DROPPED = 1 << 12  # characters that were read, before they are dropped


class NoCallError(Exception):
    """The text that was read is not a tool call.

    ``at_end``: the text ends within JSON, so more text might have completed it.
    """

    def __init__(self, reason: str, *, at_end: bool = False) -> None:
        super().__init__(reason)
        self.at_end = at_end


class Cursor:
    """A position in a growing text.

    ``more`` and the methods that need it are generators: they yield until text arrives or ``ended``
    is set.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def more(self) -> Steps[bool]:
        """Wait for text; False if no more will arrive."""
        if self.ended:
            return False
        yield
        return True

    def peek(self) -> Steps[str]:
        """Return the next character, "" at the end."""
        while self.at >= len(self.text):
            if not (yield from self.more()):
                return ""
        return self.text[self.at]

    def starts(self, mark: str) -> Steps[bool]:
        """Whether ``mark`` comes next; known as soon as a character differs."""
        while not self.text.startswith(mark, self.at):
            if not mark.startswith(self.text[self.at : self.at + len(mark)]):
                return False
            if not (yield from self.more()):
                return False
        return True

    def skip(self, mark: str) -> Steps[bool]:
        """Skip ``mark`` if it comes next, and return whether it did."""
        if not (yield from self.starts(mark)):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark: str) -> Steps[None]:
        """Skip ``mark``. Raises NoCallError if something else comes next."""
        if not (yield from self.skip(mark)):
            at_end = mark.startswith(self.text[self.at :])
            raise NoCallError(f"{mark!r} is missing", at_end=at_end)

    def white(self) -> Steps[str]:
        """Skip white space, and return the character after it, "" at the end."""
        while (character := (yield from self.peek())) and character in WHITE:
            self.at += 1
        return character

    def matching(self, characters: str) -> Steps[str]:
        """Skip and return the given characters that come next."""
        begin = self.at
        while (character := (yield from self.peek())) and character in characters:
            self.at += 1
        return self.text[begin : self.at]

    def until(
        self, marks: Sequence[str], give: Give, *, final: bool = False, part: bool = True
    ) -> Steps[str]:
        """Pass the text before the first of ``marks`` to ``give``; skip that mark and return it.

        If two begin at the same position, the longer one counts. Returns "" at the end of the text.
        ``final``: the text that was given is not read again, so that it can be dropped. ``part``:
        the beginning of a mark at the end of the text is given too.
        """
        search = _search(tuple(marks))
        while True:
            match = search(self.text, self.at)
            whole = self.ended and part
            held = len(self.text) if whole else _possible(self.text, self.at, marks)
            if match and match.start() < held:
                begin, self.at = self.at, match.start()
                if self.at > begin:
                    give(self.text[begin : self.at])
                self.at = match.end()
                return match.group()
            if held > self.at:
                begin, self.at = self.at, held
                give(self.text[begin:held])
                if final and held > _DROPPED:
                    self.text, self.at = self.text[held:], 0
            if not (yield from self.more()):
                self.at = len(self.text)
                return ""

    def ends_within(self, marks: Sequence[str]) -> Steps[bool]:
        """Whether the text ends within one of ``marks`` that has just begun."""
        while True:
            rest = self.text[self.at :]
            if not any(mark.startswith(rest) and mark != rest for mark in marks):
                return False
            if not (yield from self.more()):
                return rest != ""

    def name(self, marks: Sequence[str]) -> Steps[tuple[str, str]]:
        """Return the name before the first of ``marks``, and that mark; skip both.

        Raises NoCallError if there is none in the same line.
        """
        search, most = _search((*marks, "\n")), _LONGEST_NAME + max(map(len, marks))
        while not (match := search(self.text, self.at, self.at + most)):
            short = len(self.text) - self.at < most
            if not short or not (yield from self.more()):
                raise NoCallError(f"{marks[0]!r} is missing", at_end=short)
        text, end = self.text[self.at : match.start()], match.group()
        if end == "\n" and end not in marks:
            raise NoCallError(f"{marks[0]!r} is missing")
        self.at = match.end()
        return text.strip(), end

    def collect(self, marks: Sequence[str]) -> Steps[str]:
        """Return the text before the first of ``marks``, and skip both.

        Raises NoCallError if there is none.
        """
        pieces: list[str] = []
        begin = self.at
        if not (yield from self.until(marks, pieces.append)):
            self.at = begin
            raise NoCallError(f"{marks[0]!r} is missing")
        return "".join(pieces)


@lru_cache(maxsize=64)
def _search(marks: tuple[str, ...]) -> Callable[..., re.Match[str] | None]:
    if not marks:
        return lambda *text_and_places: None
    longest_first = sorted(marks, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))).search


def _possible(text: str, at: int, marks: Sequence[str]) -> int:
    """Return the first position from which the text may become one of ``marks``, or the end."""
    longest = max(map(len, marks), default=1) - 1
    firsts = {mark[0] for mark in marks}
    for place in range(max(at, len(text) - longest), len(text)):
        if text[place] in firsts:
            tail = text[place:]
            if any(len(mark) > len(tail) and mark.startswith(tail) for mark in marks):
                return place
    return len(text)
