"""How slowly a client may send a body or read an answer before its connection is given up."""

from __future__ import annotations

# Bytes per second that a client must send, or take, in the mean of each window of STALL_SECONDS.
LEAST_RATE = 1024
STALL_SECONDS = 60.0


class Pace:
    """Bytes that a client has sent or taken, looked at from time to time.

    ``now`` is always a time in seconds of the same clock.
    """

    def __init__(self, now: float) -> None:
        self._since, self._before = now, 0

    def restart(self, now: float, total: int) -> None:
        """Begin a new window: nothing was asked of the client until ``now``."""
        self._since, self._before = now, total

    def is_late(self, now: float, total: int) -> bool:
        """Whether a window has ended with too few bytes; ``total`` of them have gone so far."""
        if now - self._since < STALL_SECONDS:
            return False
        if total - self._before < LEAST_RATE * STALL_SECONDS:
            return True
        self.restart(now, total)
        return False
