"""All connections of a server: how many there may be, and which ones make room for others."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from typing import TYPE_CHECKING

from uvicorn.server import ServerState

if TYPE_CHECKING:
    from trinity.server.connection import Connection

log = logging.getLogger("trinity.server")
MOST_CONNECTIONS = 512  # where the limit of descriptors does not say fewer
LEAST_CONNECTIONS = 8
# A part of the connections comes on top: those get short answers, and 503 to others.
SPARE_PART = 16
# A connection whose client has been silent for less than this does not make room, in seconds.
SILENT_SECONDS = 0.02
# Bytes that all clients together may leave unread, beyond what each transport holds anyway.
MOST_UNREAD = 128 << 20
# At most one warning of a kind in this time, in seconds.
WARNED_SECONDS = 60.0


class Connections(ServerState):
    """The connections of a server.

    Where there are as many as may be, a new one takes the place of one that waits for its own
    client: for a request, for the rest of one, or for an answer to be read. Where none waits, the
    new one is ``crowded``.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most = most_connections() if most is None else most
        self.spare = max(1, self.most // SPARE_PART)
        self.beginning = 0  # accepted, and not yet in ``connections``
        self.total = 0  # that have begun
        self._warned = dict[str, float]()

    @property
    def full(self) -> bool:
        """Whether no more can be accepted, not even a crowded one."""
        return len(self.connections) + self.beginning >= self.most + self.spare

    def is_crowded(self) -> bool:
        """Whether one more is too many and none made room for it."""
        if len(self.connections) <= self.most:
            return False
        alive = sum(not one.transport.is_closing() for one in self.all)
        return alive > self.most and not self.make_room()

    @property
    def all(self) -> list[Connection]:
        """Every connection."""
        return list(self.connections)  # type: ignore[arg-type]

    def make_room(self) -> bool:
        """End connections that wait for their clients; whether there were any.

        They are those of the client with the most connections that have waited longest. There may
        be very many new ones, so it ends some at once.
        """
        now = time.monotonic()
        self.warn(
            "there are more than %d connections; those that wait longest for their clients make "
            "room for new ones",
            self.most,
        )
        alive = [one for one in self.all if not one.transport.is_closing()]
        waiting = [(since, one) for one in alive if (since := one.waiting_since) is not None]
        if not waiting:
            return False
        counts = Counter(one.network for one in alive)
        most = max((one.network for _, one in waiting), key=lambda network: counts[network])
        silent = [
            (since, one)
            for since, one in waiting
            if one.network == most and now - since >= SILENT_SECONDS
        ]
        for _, one in sorted(silent, key=lambda found: found[0])[: self.spare]:
            one.give_up()
        return bool(silent)

    def check_unread(self) -> None:
        """Keep below MOST_UNREAD what clients leave unread.

        The one that has not read for longest is ended; a single one may exceed the limit.
        """
        unread = [one for one in self.all if one.unread_since is not None]
        total = sum(one.unread for one in unread)
        unread.sort(key=lambda one: one.unread_since or 0.0, reverse=True)
        while total > MOST_UNREAD and len(unread) > 1:
            slow = unread.pop()
            total -= slow.unread
            slow.give_up()
            self.warn(
                "clients leave more than %d bytes of answers unread; the connections of the "
                "slowest are ended",
                MOST_UNREAD,
            )

    def sweep(self) -> None:
        """End connections whose clients take too long; for every second."""
        now = time.monotonic()
        for one in self.all:
            one.check(now)
        self.check_unread()

    def warn(self, message: str, *values: object) -> None:
        """Log a warning, unless the same was logged a moment ago."""
        now = time.monotonic()
        if now - self._warned.get(message, -WARNED_SECONDS) >= WARNED_SECONDS:
            self._warned[message] = now
            log.warning(message, *values)


def most_connections() -> int:
    """Half of the descriptors that this process may still open, within limits."""
    try:
        import resource  # there is none on Windows

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = len(os.listdir("/dev/fd"))
    except (ImportError, OSError):
        return MOST_CONNECTIONS
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(max((soft - taken) // 2, LEAST_CONNECTIONS), MOST_CONNECTIONS)
