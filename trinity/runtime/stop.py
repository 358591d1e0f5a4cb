"""Stop strings in a stream of text, where one may begin in one piece and end in another."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until a stop string appears; holds back what may become one.

    A stop string that is complete ends the text, even where a longer one could still have begun
    before it. The stop string itself is never passed on.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self.stop = tuple(stop)
        self.found: str | None = None  # the stop string that ended the text
        self._held = ""

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self.found is not None

    def push(self, text: str) -> str:
        """What is certain to be output after ``text``. Sets ``found`` at a stop string."""
        if self.stopped:
            return ""
        self._held += text
        found = [(at, s) for s in self.stop if (at := self._held.find(s)) >= 0]
        if found:
            at, self.found = min(found)
            out, self._held = self._held[:at], ""
            return out
        certain = len(self._held) - max((overlap(self._held, s) for s in self.stop), default=0)
        out, self._held = self._held[:certain], self._held[certain:]
        return out

    def finish(self) -> str:
        """What was held back, once no more text comes."""
        out, self._held = self._held, ""
        return out


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that begins ``stop`` without completing it."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
