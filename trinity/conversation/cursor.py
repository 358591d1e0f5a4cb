"""Text that comes in pieces, read as if it were whole: nothing depends on where it was cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A function that yields where it needs more text than there is."""
Give = Callable[[str], None]

WHITE = " \t\r\n"
_LONGEST_NAME = 200
_DROPPED = 1 << 12  # characters that were read, before they are forgotten


class NoCallError(Exception):
    """What was read is no call of a tool.

    ``at_end``: the text ends within JSON, which more text might have completed.
    """

    def __init__(self, reason: str, *, at_end: bool = False) -> None:
        super().__init__(reason)
        self.at_end = at_end


class Cursor:
    """A place in a growing text.

    ``more`` and all that needs it are generators: they yield until text comes, or ``ended``.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def more(self) -> Steps[bool]:
        """Wait for text; False where none comes any more."""
        if self.ended:
            return False
        yield
        return True

    def peek(self) -> Steps[str]:
        """The next character, "" at the end."""
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
        """Go behind ``mark``, if it comes next."""
        if not (yield from self.starts(mark)):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark: str) -> Steps[None]:
        """Go behind ``mark``. Raises NoCallError where something else comes."""
        if not (yield from self.skip(mark)):
            at_end = mark.startswith(self.text[self.at :])
            raise NoCallError(f"{mark!r} is missing", at_end=at_end)

    def white(self) -> Steps[str]:
        """Go behind white space, and return the character after it, "" at the end."""
        while (found := (yield from self.peek())) and found in WHITE:
            self.at += 1
        return found

    def matching(self, characters: str) -> Steps[str]:
        """All that comes next of the given characters."""
        begin = self.at
        while (found := (yield from self.peek())) and found in characters:
            self.at += 1
        return self.text[begin : self.at]

    def until(
        self, marks: Sequence[str], give: Give, *, final: bool = False, part: bool = True
    ) -> Steps[str]:
        """``give`` what comes before the first of ``marks``; go behind that mark and return it.

        Of two at one place the longer one counts. "" at the end of the text. ``final``: what was
        given is not asked for again, and is forgotten now and then. ``part``: a mark's beginning at
        the end of the text is given.
        """
        found = _search(tuple(marks))
        while True:
            match = found(self.text, self.at)
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
        """Whether the text ends within one of ``marks``, whose beginning comes next."""
        while True:
            rest = self.text[self.at :]
            if not any(mark.startswith(rest) and mark != rest for mark in marks):
                return False
            if not (yield from self.more()):
                return rest != ""

    def name(self, marks: Sequence[str]) -> Steps[tuple[str, str]]:
        """A name up to the first of ``marks``, behind which it goes, and that mark.

        Raises NoCallError where none comes in the same line.
        """
        found, most = _search((*marks, "\n")), _LONGEST_NAME + max(map(len, marks))
        while not (match := found(self.text, self.at, self.at + most)):
            short = len(self.text) - self.at < most
            if not short or not (yield from self.more()):
                raise NoCallError(f"{marks[0]!r} is missing", at_end=short)
        text, end = self.text[self.at : match.start()], match.group()
        if end == "\n" and end not in marks:
            raise NoCallError(f"{marks[0]!r} is missing")
        self.at = match.end()
        return text.strip(), end

    def collect(self, marks: Sequence[str]) -> Steps[str]:
        """What comes before the first of ``marks``, behind which it goes.

        Raises NoCallError where none comes.
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
    """The first place whose text up to the end may become one of ``marks``, or the end."""
    longest = max(map(len, marks), default=1) - 1
    firsts = {mark[0] for mark in marks}
    for place in range(max(at, len(text) - longest), len(text)):
        if text[place] in firsts:
            tail = text[place:]
            if any(len(mark) > len(tail) and mark.startswith(tail) for mark in marks):
                return place
    return len(text)
