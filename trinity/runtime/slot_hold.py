"""One slot for one user, while the requests of all others go on."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from trinity.errors import InputError
from trinity.runtime.inbox import Sink
from trinity.runtime.page import Domain


class SlotHold:
    """A slot whose answers wait until ``end``; the answers of all others go on.

    The scheduler grants the hold when the answers that were submitted to the slot before it have
    ended, and puts None into ``sink``. The scheduler keeps a weak reference: a hold that is dropped
    ends. Closing the model ends a hold that has not begun.
    """

    def __init__(self, slot: Domain, sink: Sink, arrival: int) -> None:
        self.slot = slot
        self.arrival = arrival  # its place among requests
        self.granted = False
        self._sink = sink
        self._lock = threading.Lock()
        self._begun = False
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether the slot is free of it."""
        return self._ended

    def grant(self) -> None:
        """Tell who waits that the slot is his."""
        if not self.granted:
            self.granted = True
            self._sink.put(None)

    def begin(self) -> None:
        """Use the slot from now on; closing the model then waits for ``end``. Raises: InputError"""
        with self._lock:
            if self._ended:
                raise InputError("the model is closed; load it again")
            self._begun = True

    def end(self) -> None:
        """Let the slot's answers go on; again is harmless."""
        self._ended = True

    def close(self) -> bool:
        """End it unless it was begun; whether it is over. Who still waits for it gets an error."""
        with self._lock:
            if not self._begun and not self._ended:
                self._ended = True
                if not self.granted:
                    self._sink.put(InputError("the model is closed; load it again"))
        return self._ended


class SlotHolds:
    """The holds of one scheduler, those that wait and those that are granted, as they came."""

    def __init__(self) -> None:
        self.holds: list[weakref.ref[SlotHold]] = []

    def add(self, hold: weakref.ref[SlotHold]) -> None:
        """Let one more wait."""
        self.holds.append(hold)

    def look(self, is_free: Callable[[Domain, int], bool]) -> dict[Domain, int]:
        """Forget those that are over, and grant the first of each slot that ``is_free``.

        Returns the slots that are held or waited for, with the arrival of the first who does.
        """
        first: dict[Domain, SlotHold] = {}
        for hold in self._alive():
            first.setdefault(hold.slot, hold)
        for hold in first.values():
            if hold.granted or is_free(hold.slot, hold.arrival):
                hold.grant()
        return {slot: hold.arrival for slot, hold in first.items()}

    def close(self) -> bool:
        """End all that were not begun; whether none is left."""
        left = [hold for hold in self._alive() if not hold.close()]
        return not left

    def _alive(self) -> list[SlotHold]:
        holds = [(ref, ref()) for ref in self.holds]
        alive = [(ref, hold) for ref, hold in holds if hold is not None and not hold.over]
        self.holds = [ref for ref, _ in alive]
        return [hold for _, hold in alive]
