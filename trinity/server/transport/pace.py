"""The least rate at which a client must send a body or read a response."""

from __future__ import annotations

# Bytes per second, on average over each window of STALL_SECONDS.
LEAST_RATE = 1024
STALL_SECONDS = 60.0


class Pace:
    """The rate of one client, checked from time to time. ``now`` is in seconds of one clock."""

    def __init__(self, now: float) -> None:
        self._since, self._before = now, 0

    def restart(self, now: float, total: int) -> None:
        """Start a new window at ``now``."""
        self._since, self._before = now, total

    def is_late(self, now: float, total: int) -> bool:
        """Whether a window has ended with too few bytes; ``total`` is the sum so far."""
        if now - self._since < STALL_SECONDS:
            return False
        if total - self._before < LEAST_RATE * STALL_SECONDS:
            return True
        self.restart(now, total)
        return False
