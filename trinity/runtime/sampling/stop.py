"""Finds stop strings in a stream of text, where one may span several chunks.

The strings of a request become an automaton (Aho and Corasick, Communications of the ACM 18(6),
1975), so the cost is proportional to the length of the text, however many strings there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from weakref import WeakValueDictionary


class StopStrings:
    """The automaton of a set of stop strings.

    A state represents the longest end of the text that begins a stop string; 0 is the empty one.
    Building it takes time and memory in proportion to the total length of the strings.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._next: dict[tuple[int, str], int] = {}
        self.depth = [0]  # the length of the text that each state represents
        self._fallback = [0]  # the state of its longest shorter end
        self.ends = [0]  # the length of the longest stop string at its end
        children: list[list[tuple[str, int]]] = [[]]
        for string in strings:
            state = 0
            for character in string:
                following = self._next.get((state, character))
                if following is None:
                    following = self._next[state, character] = len(self.depth)
                    children[state].append((character, following))
                    children.append([])
                    self.depth.append(self.depth[state] + 1)
                    self._fallback.append(0)
                    self.ends.append(0)
                state = following
            self.ends[state] = len(string)
        waiting = deque(child for _, child in children[0])
        while waiting:  # in order of depth, because each state needs those of its shorter ends
            state = waiting.popleft()
            fallback = self._fallback[state]
            self.ends[state] = self.ends[state] or self.ends[fallback]
            for character, child in children[state]:
                self._fallback[child] = self.after(fallback, character)
                waiting.append(child)

    def after(self, state: int, character: str) -> int:
        """The state after one more character."""
        while (following := self._next.get((state, character))) is None and state:
            state = self._fallback[state]
        return following or 0


_shared: WeakValueDictionary[tuple[str, ...], StopStrings] = WeakValueDictionary()


def automaton_of(strings: Sequence[str]) -> StopStrings:
    """The automaton of these strings; concurrent requests share it."""
    key = tuple(strings)
    automaton = _shared.get(key)
    if automaton is None:
        automaton = _shared[key] = StopStrings(key)
    return automaton


class StopMatcher:
    """Passes text on until a stop string appears; holds back text that may become one.

    A complete stop string ends the text, even if a longer one could begin before it. The stop
    string itself is not passed on.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self.found: str | None = None  # the stop string that ended the text
        self._automaton = automaton_of(stop) if stop else None
        self._state = 0
        self._held = ""

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self.found is not None

    def push(self, text: str) -> str:
        """Add ``text`` and return what can be output now. A stop string sets ``found``.

        Of several complete strings, the one that begins first ends the text, and among those the
        shortest.
        """
        if self.stopped:
            return ""
        automaton = self._automaton
        if automaton is None:
            return text
        state, begin = self._state, None
        size = len(self._held)
        self._held += text
        for end, character in enumerate(text, size + 1):
            state = automaton.after(state, character)
            length = automaton.ends[state]
            if length and (begin is None or end - length < begin):
                begin, self.found = end - length, self._held[end - length : end]
        self._state = state
        certain = len(self._held) - automaton.depth[state] if begin is None else begin
        out, self._held = self._held[:certain], "" if self.stopped else self._held[certain:]
        return out

    def finish(self) -> str:
        """The text that was held back, at the end."""
        out, self._held = self._held, ""
        return out
