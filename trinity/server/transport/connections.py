"""All connections of a server: their number, and which ones make room for new ones."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from uvicorn.server import ServerState

if TYPE_CHECKING:
    from trinity.server.transport.accepting import Accepted
    from trinity.server.transport.connection import Connection

log = logging.getLogger("trinity.server")
MOST_CONNECTIONS = 512  # unless the limit of descriptors is lower
LEAST_CONNECTIONS = 8
# The limit may be exceeded by this fraction (1/16); requests there get 503, except for GET.
SPARE_PART = 16
# Seconds of silence before a connection may be replaced.
SILENT_SECONDS = 0.01
# Unread bytes of all clients together, beyond each transport's own buffer.
MOST_UNREAD = 128 << 20
# Seconds between two equal warnings.
WARNED_SECONDS = 60.0


class Connections(ServerState):
    """The connections of a server.

    At the limit, a new connection replaces one that waits for its client: for a request, for the
    rest of one, or until a response is read. If none waits, the new one is ``crowded``.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most = most_connections() if most is None else most
        self.spare = max(1, self.most // SPARE_PART)
        self.accepted: set[Accepted] = set()  # those that have not begun
        self.beginning: set[Accepted] = set()  # that begin, and are not yet in ``connections``
        self.total = 0  # that have begun
        # Called when the server begins to end: one for each stream that does not end by itself.
        self.ending = set[Callable[[], None]]()
        self.partial = 0  # bytes of incomplete messages of WebSockets
        self._warned = dict[str, float]()

    @property
    def full(self) -> bool:
        """Whether not even a crowded connection can be accepted."""
        taken = len(self.connections) + len(self.accepted) + len(self.beginning)
        return taken >= self.most + self.spare

    def is_crowded(self) -> bool:
        """Whether there are too many connections and none could be replaced."""
        if len(self.connections) <= self.most:
            return False
        alive = sum(not connection.transport.is_closing() for connection in self.all)
        return alive > self.most and not self.make_room()

    @property
    def all(self) -> list[Connection]:
        """Every connection."""
        return list(self.connections)  # type: ignore[arg-type]

    def drop_accepted(self) -> bool:
        """Close silent connections that have not begun, of the client with the most connections.

        Returns whether there were some. To begin a connection and to end it takes ten times as
        long, while others wait to be accepted.
        """
        every: list[Connection | Accepted] = [*self.all, *self.accepted, *self.beginning]
        ((network, _),) = Counter(one.network for one in every).most_common(1)
        own = sorted((one for one in self.accepted if one.network == network), key=_since)
        before = time.monotonic() - SILENT_SECONDS
        old = takewhile(lambda one: one.since <= before, own)
        silent = list(islice((one for one in old if one.waiting_since is not None), self.spare))
        for accepted in silent:
            accepted.give_up()
            self.accepted.discard(accepted)
        if silent:
            self._warn_full()
        return bool(silent)

    def make_room(self) -> bool:
        """End some connections that wait for their clients. Returns whether there will be room.

        It ends those that have waited longest, of the client with the most connections. If that
        client's are just beginning or ending, it ends none of another client.
        """
        now = time.monotonic()
        self._warn_full()
        alive: list[Connection | Accepted] = [
            connection for connection in self.all if not connection.transport.is_closing()
        ]
        alive += self.accepted
        changing = {one.network for one in self.beginning}
        changing |= {one.network for one in self.all if one.transport.is_closing()}
        every: list[Connection | Accepted] = [*self.all, *self.accepted, *self.beginning]
        for network, _ in Counter(one.network for one in every).most_common():
            own = [c for c in alive if c.network == network]
            waiting = [(since, c) for c in own if (since := c.waiting_since) is not None]
            if waiting:
                break
            if network in changing:
                return True
        else:
            return False
        silent = [(since, c) for since, c in waiting if now - since >= SILENT_SECONDS]
        for _, connection in sorted(silent, key=lambda pair: pair[0])[: self.spare]:
            connection.give_up()
            self.accepted.discard(connection)
        return bool(silent)

    def check_unread(self) -> None:
        """Keep unread bytes below MOST_UNREAD.

        The connection that has not read for longest is ended. A single one may exceed the limit.
        """
        unread = [connection for connection in self.all if connection.unread_since is not None]
        total = sum(connection.unread for connection in unread)
        unread.sort(key=lambda connection: connection.unread_since or 0.0, reverse=True)
        while total > MOST_UNREAD and len(unread) > 1:
            slow = unread.pop()
            total -= slow.unread
            slow.give_up()
            self.warn(
                "unread responses exceed %d bytes; the slowest clients are disconnected",
                MOST_UNREAD,
            )

    def sweep(self) -> None:
        """End connections whose clients are too slow. Called every second."""
        now = time.monotonic()
        for connection in self.all:
            connection.check(now)
        self.check_unread()

    def _warn_full(self) -> None:
        self.warn(
            "there are more than %d connections; those that have waited longest for their "
            "clients are closed",
            self.most,
        )

    def warn(self, message: str, *values: object) -> None:
        """Log a warning, unless the same one was logged recently."""
        now = time.monotonic()
        if now - self._warned.get(message, -WARNED_SECONDS) >= WARNED_SECONDS:
            self._warned[message] = now
            log.warning(message, *values)


def _since(accepted: Accepted) -> float:
    return accepted.since


def most_connections() -> int:
    """Half of the descriptors that this process can still open, within limits."""
    try:
        import resource  # there is none on Windows

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = len(os.listdir("/dev/fd"))
    except (ImportError, OSError):
        return MOST_CONNECTIONS
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(max((soft - taken) // 2, LEAST_CONNECTIONS), MOST_CONNECTIONS)
