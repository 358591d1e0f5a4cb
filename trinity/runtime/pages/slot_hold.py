"""Exclusive use of one slot, while requests of other slots continue."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from trinity.errors import InputError
from trinity.runtime.pages.page import Domain
from trinity.runtime.scheduling.inbox import Sink


class SlotHold:
    """A slot whose requests wait until ``end``, while all other requests continue.

    The scheduler grants the hold when the requests that were submitted to the slot before it have
    ended, and puts None into ``sink``. It refers to the hold weakly: a hold that is dropped ends.
    Closing the model ends a hold that has not begun.
    """

    def __init__(self, slot: Domain, sink: Sink, arrival: int) -> None:
        self.slot = slot
        self.arrival = arrival  # its order of arrival among requests
        self.granted = False
        self._sink = sink
        self._lock = threading.Lock()
        self._begun = False
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether the hold has ended."""
        return self._ended

    def grant(self) -> None:
        """Tell the waiting caller that the slot is held."""
        if not self.granted:
            self.granted = True
            self._sink.put(None)

    def begin(self) -> None:
        """Start using the slot; closing the model then waits for ``end``. Raises: InputError."""
        with self._lock:
            if self._ended:
                raise InputError("the model is closed; load it again")
            self._begun = True

    def end(self) -> None:
        """Let the slot's requests continue. Ending again does nothing."""
        self._ended = True

    def close(self) -> bool:
        """End the hold unless it was begun; return whether it has ended. A waiting caller gets an
        error.
        """
        with self._lock:
            if not self._begun and not self._ended:
                self._ended = True
                if not self.granted:
                    self._sink.put(InputError("the model is closed; load it again"))
        return self._ended


class SlotHolds:
    """The holds of one scheduler, waiting and granted, in order of arrival."""

    def __init__(self) -> None:
        self.holds: list[weakref.ref[SlotHold]] = []

    def add(self, hold: weakref.ref[SlotHold]) -> None:
        """Add a hold that waits."""
        self.holds.append(hold)

    def look(self, is_free: Callable[[Domain, int], bool]) -> dict[Domain, int]:
        """Forget holds that have ended, and grant the first of each slot that ``is_free``.

        Returns the slots that are held or waited for, with the arrival of the first hold.
        """
        first: dict[Domain, SlotHold] = {}
        for hold in self._alive():
            first.setdefault(hold.slot, hold)
        for hold in first.values():
            if hold.granted or is_free(hold.slot, hold.arrival):
                hold.grant()
        return {slot: hold.arrival for slot, hold in first.items()}

    def close(self) -> bool:
        """End all holds that were not begun; return whether none is left."""
        left = [hold for hold in self._alive() if not hold.close()]
        return not left

    def _alive(self) -> list[SlotHold]:
        holds = [(ref, ref()) for ref in self.holds]
        alive = [(ref, hold) for ref, hold in holds if hold is not None and not hold.over]
        self.holds = [ref for ref, _ in alive]
        return [hold for _, hold in alive]
