"""Calls within a section: a first and a last delimiter, and three delimiters per call."""

from __future__ import annotations

from trinity.conversation.cursor import Steps
from trinity.conversation.dialects.dialect import Dialect
from trinity.conversation.reading import Reading


class Section(Dialect):
    """``first`` call call ... ``last``; a call is ``begin`` name ``middle`` arguments ``end``."""

    first = begin = middle = end = last = ""

    @property
    def marks(self) -> tuple[str, ...]:  # type: ignore[override]
        """The first two delimiters: models sometimes omit the first."""
        return (self.first, self.begin)

    @property
    def closers(self) -> tuple[str, ...]:
        """The last two delimiters."""
        return (self.end, self.last)

    @property
    def all_marks(self) -> tuple[str, ...]:
        """All delimiters, including those within a call."""
        return (self.first, self.begin, self.middle, self.end, self.last)

    def read_calls(self, reading: Reading, mark: str) -> Steps[None]:
        """Parse calls up to the last delimiter."""
        cursor = reading.cursor
        if mark == self.first:
            yield from cursor.white()
            yield from cursor.expect(self.begin)
        while True:
            yield from self.read_call(reading)
            yield from reading.past((self.end,), (self.begin, self.last))
            if reading.complete or not (yield from cursor.skip(self.begin)):
                break
        yield from reading.past((self.end, self.last), self.marks)

    def read_call(self, reading: Reading) -> Steps[None]:
        """Parse one call after ``begin``, up to ``end``."""
        raise NotImplementedError
