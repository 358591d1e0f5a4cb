"""The tokens of the last sequence of each slot, while their KV pages still exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trinity.runtime.pages.page import AdapterWeights, Domain

LEAST = 1 << 16  # number of tokens of all slots below which nothing is cleaned up


class Held(NamedTuple):
    """The tokens of a slot's last sequence. Some of their pages may be gone."""

    kv_type: str
    adapters: AdapterWeights
    tokens: list[int]


class HeldSlots:
    """The tokens that slots hold.

    Tokens whose pages are gone are dropped whenever the total has doubled. There are therefore at
    most twice as many tokens as pages have positions, plus ``LEAST``.
    """

    def __init__(self) -> None:
        self._by_slot: dict[Domain, Held] = {}
        self._most = LEAST
        self._added = 0  # tokens noted so far, including those replaced since the last cleanup

    @property
    def tokens(self) -> int:
        """The number of tokens that are noted."""
        return sum(len(held.tokens) for held in self._by_slot.values())

    def get(self, slot: Domain) -> Held | None:
        """The tokens that a slot holds."""
        return self._by_slot.get(slot)

    def add(self, slot: Domain, held: Held, length: Callable[[Domain, Held], int]) -> None:
        """Set what a slot holds. ``length`` returns how many leading tokens of a ``Held`` still
        exist.
        """
        self._by_slot[slot] = held
        self._added += len(held.tokens)
        if self._added > self._most:
            self._look(length)

    def forget(self, slot: Domain) -> None:
        """Forget what a slot holds."""
        self._by_slot.pop(slot, None)

    def _look(self, length: Callable[[Domain, Held], int]) -> None:
        for slot, held in list(self._by_slot.items()):
            count = length(slot, held)
            if count:
                self._by_slot[slot] = held._replace(tokens=held.tokens[:count])
            else:
                del self._by_slot[slot]
        self._added = self.tokens
        self._most = LEAST + 2 * self._added
