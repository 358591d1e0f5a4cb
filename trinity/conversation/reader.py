"""An answer's text to parts, as it comes."""

from __future__ import annotations

from trinity.conversation.cursor import Steps
from trinity.conversation.parts import Part
from trinity.conversation.reading import Reading


class Reader:
    """Reads one answer. The parts do not depend on where the text is cut; for one thread at a time.

    ``push`` gives what is certain after more text, ``finish`` the rest. The arguments of a call are
    one valid JSON object, whatever the model wrote: slips are mended, and where the text ends
    within them they are completed. What looks like a call and is none, as no such tool was given,
    is text. ``problems`` says what was wrong.
    """

    def __init__(self, reading: Reading, steps: Steps[list[str]]) -> None:
        self._reading = reading
        self._steps = steps
        self._ended = False
        self.problems: list[str] = []

    @property
    def called(self) -> bool:
        """Whether a call of a tool has begun."""
        return self._reading.scribe.calls > 0

    @property
    def complete(self) -> bool:
        """Whether no more is wanted: one call was allowed and has been read."""
        return self._ended

    def push(self, text: str) -> tuple[Part, ...]:
        """What is certain after ``text``, perhaps nothing."""
        self._reading.cursor.text += text
        return self._go()

    def finish(self) -> tuple[Part, ...]:
        """What was held back, once no more text comes."""
        self._reading.cursor.ended = True
        return self._go()

    def _go(self) -> tuple[Part, ...]:
        if not self._ended:
            try:
                next(self._steps)
            except StopIteration as end:
                self._ended = True
                self.problems = end.value
        return self._reading.scribe.take()
