"""Fair scheduling of clients: their requests take turns.

A request's turn is the number of the client's earlier requests that have not ended. Among equal
turns, the client whose newest request was started longest ago comes first. A new client therefore
waits for at most one request of each other client. Requests of a single client keep their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.runtime.scheduling.sequence import Sequence


class Turns:
    """Sets the turns of sequences before each step."""

    def __init__(self) -> None:
        self.several = False  # whether there are several clients
        self._begun: dict[str, int] = {}  # the start order of each client's newest request
        self._count = 0

    def note(self, sequences: list[Sequence]) -> None:
        """Set the turn of each sequence that has not ended; with a single client all are equal."""
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
        """Note that a sequence was admitted."""
        self._count += 1
        if not self.several:
            self._begun.clear()
        self._begun[sequence.client] = self._count


def to_give_way(sequence: Sequence, admitted: Iterable[Sequence]) -> Sequence | None:
    """The sequence of ``admitted`` that is preempted for ``sequence``; None if there is none.

    It is the last one of the client with most admitted sequences, unless that client would then
    have fewer than the client of ``sequence``. Sequences of a higher priority are not preempted.
    """
    others = [other for other in admitted if other.priority >= sequence.priority]
    counts = Counter(other.client for other in others)
    if not counts:
        return None
    name, most = counts.most_common(1)[0]
    if most < counts[sequence.client] + 2:
        return None
    return max((other for other in others if other.client == name), key=lambda other: other.rank)
