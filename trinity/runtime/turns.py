"""Whose request is next where several clients ask: their requests take turns.

Start-time fair queueing with requests of equal weight (Goyal, Vin and Cheng, 1996): a request's
turn is one after that of the same client's last request, but not before the turn that has been
reached. So a client who comes waits for one request of each other client, however many they have
sent; requests of a single client keep the order in which they came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.runtime.sequence import Sequence

# Who asks; tasks and threads inherit it. Whoever does not say so is one client, "".
client: ContextVar[str] = ContextVar("client", default="")
MOST_CLIENTS = 1024  # that are remembered, beside those whose turns are still to come


class Turns:
    """Gives turns to requests."""

    def __init__(self) -> None:
        self._reached = 0
        self._last: dict[str, int] = {}

    def next(self, name: str) -> int:
        """The turn of a client's next request."""
        turn = max(self._reached, self._last.get(name, -1) + 1)
        if len(self._last) > MOST_CLIENTS:
            self._last = {one: last for one, last in self._last.items() if last >= self._reached}
        self._last[name] = turn
        return turn

    def reached(self, turn: int) -> None:
        """A request of this turn begins."""
        self._reached = max(self._reached, turn)


def to_give_way(sequence: Sequence, admitted: Iterable[Sequence]) -> Sequence | None:
    """Which of the ``admitted`` gives its place to one that waits; None where none has to.

    It is the last of the client that has most, if that one would not have fewer than the client of
    ``sequence`` afterwards. None of a higher priority gives way.
    """
    others = [one for one in admitted if one.priority >= sequence.priority]
    counts = Counter(one.client for one in others)
    if not counts:
        return None
    name, most = counts.most_common(1)[0]
    if most < counts[sequence.client] + 2:
        return None
    return max((one for one in others if one.client == name), key=lambda one: one.rank)
