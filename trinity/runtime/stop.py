"""Stop strings in a stream of text, where one may begin in one piece and end in another.

The strings of a request become an automaton (Aho and Corasick, Communications of the ACM 18(6),
1975), so that a piece of text costs in proportion to its length, however many strings there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from weakref import WeakValueDictionary


class StopStrings:
    """The automaton of a set of stop strings.

    A state stands for the longest end of the text so far that begins a stop string; 0 is the empty
    one. Building it takes time and memory in proportion to the length of all strings together.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._next: dict[tuple[int, str], int] = {}
        self.depth = [0]  # the length of what each state stands for
        self._fallback = [0]  # the state of the longest proper end of that
        self.ends = [0]  # the length of the longest stop string that it ends with
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
        while waiting:  # by depth, as each state needs those of its shorter ends
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
    """The automaton of these strings; requests that run at the same time share it."""
    key = tuple(strings)
    automaton = _shared.get(key)
    if automaton is None:
        automaton = _shared[key] = StopStrings(key)
    return automaton


class StopMatcher:
    """Passes text on until a stop string appears; holds back what may become one.

    A stop string that is complete ends the text, even where a longer one could still have begun
    before it. The stop string itself is never passed on.
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
        """What is certain to be output after ``text``. Sets ``found`` at a stop string.

        Of several strings that ``text`` completes, the one that begins first ends the text, the
        shortest of those that begin there.
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
        """What was held back, once no more text comes."""
        out, self._held = self._held, ""
        return out
