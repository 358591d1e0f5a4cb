"""What the last sequence of each slot left, as far as its pages are still there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trinity.runtime.page import AdapterWeights, Domain

LEAST = 1 << 16  # tokens of all slots, up to which nothing is looked for


class Held(NamedTuple):
    """The tokens of a sequence, of which some may be gone by now."""

    kv_type: str
    adapters: AdapterWeights
    tokens: list[int]


class HeldSlots:
    """What slots hold.

    Tokens that are gone are forgotten each time when all have doubled, so there are at most twice
    as many as pages have positions, and ``LEAST``.
    """

    def __init__(self) -> None:
        self._by_slot: dict[Domain, Held] = {}
        self._most = LEAST
        self._added = 0  # tokens, those that were replaced since the last look too

    @property
    def tokens(self) -> int:
        """How many tokens are noted."""
        return sum(len(held.tokens) for held in self._by_slot.values())

    def get(self, slot: Domain) -> Held | None:
        """What a slot holds."""
        return self._by_slot.get(slot)

    def add(self, slot: Domain, held: Held, length: Callable[[Domain, Held], int]) -> None:
        """Note what a slot holds; ``length`` tells how many first tokens of one are there."""
        self._by_slot[slot] = held
        self._added += len(held.tokens)
        if self._added > self._most:
            self._look(length)

    def forget(self, slot: Domain) -> None:
        """Note that a slot holds nothing."""
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
