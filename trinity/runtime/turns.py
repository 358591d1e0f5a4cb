"""Whose request is next where several clients ask: their requests take turns.

A request's turn is the number of requests of the same client that came before it and have not
ended; of equal ones, that of the client comes first for whom a request was begun the longest ago.
So a client who comes waits for at most one request of each other client, however many they have
sent. Requests of a single client keep the order in which they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.runtime.sequence import Sequence


class Turns:
    """Notes turns before each step."""

    def __init__(self) -> None:
        self.several = False  # whether there are several clients
        self._begun: dict[str, int] = {}  # which request of all was the client's newest to begin
        self._count = 0

    def note(self, sequences: list[Sequence]) -> None:
        """Note the turn of each sequence that has not ended; the same for all of one client."""
        before, first = self.several, sequences[:1]
        self.several = any(sequence.client != first[0].client for sequence in sequences)
        if self.several:
            counts = Counter[str]()
            for sequence in sorted(
                sequences, key=lambda sequence: (sequence.priority, sequence.arrival)
            ):
                sequence.turn = counts[sequence.client], self._begun.get(sequence.client, 0)
                counts[sequence.client] += 1
            self._begun = {name: last for name, last in self._begun.items() if name in counts}
        elif before:
            for sequence in sequences:
                sequence.turn = 0, 0

    def begin(self, sequence: Sequence) -> None:
        """Note that a sequence has a place."""
        self._count += 1
        if not self.several:
            self._begun.clear()
        self._begun[sequence.client] = self._count


def to_give_way(sequence: Sequence, admitted: Iterable[Sequence]) -> Sequence | None:
    """Which of the ``admitted`` gives its place to one that waits; None where none has to.

    It is the last of the client that has most, if that one would not have fewer than the client of
    ``sequence`` afterwards. None of a higher priority gives way.
    """
    others = [other for other in admitted if other.priority >= sequence.priority]
    counts = Counter(other.client for other in others)
    if not counts:
        return None
    name, most = counts.most_common(1)[0]
    if most < counts[sequence.client] + 2:
        return None
    return max((other for other in others if other.client == name), key=lambda other: other.rank)
