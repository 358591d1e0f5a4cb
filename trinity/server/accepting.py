"""Takes connections from a listening socket, as many as there is room for."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from trinity.server.connections import Connections

# Seconds until another try where the system refuses a connection, or all places are taken.
BACK_OFF = 0.01
# Connections that wait for the server to take them.
BACKLOG = 2048
# Seconds of silence after which the system asks whether a client is there, between its questions,
# and how many of them may stay unanswered.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# Bytes that the system holds before they are sent: it takes more only as the client reads, so that
# the pace of a slow one shows.
NOT_SENT = 128 << 10
# Connections that were waiting in a row, after which those are dropped whose clients have gone.
CROWD = 16
# Connections that are taken before the event loop goes on.
AT_ONCE = 8
# Of TCP_INFO on Linux: both directions are open.
_ESTABLISHED = 1
# The client has gone before its connection was taken.
_LEFT = (errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.ENOTCONN)


class Accepting:
    """Gives each connection of ``listener`` a protocol that ``made`` makes, in the running loop.

    asyncio's own servers take every connection there is, and where descriptors run out they log a
    traceback for each place of the backlog.
    """

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        made: Callable[[], asyncio.Protocol],
    ) -> None:
        self._listener = listener
        self._connections = connections
        self._made = made
        self._loop = asyncio.get_running_loop()
        self._beginning = set[asyncio.Task[None]]()
        listener.setblocking(False)
        prepare(listener)
        listener.listen(BACKLOG)
        self._task = self._loop.create_task(self._run())

    def close(self) -> None:
        """Take no more; the socket is the caller's."""
        self._task.cancel()
        # A number that is used again must not be removed from the loop later.
        with suppress(NotImplementedError, ValueError, OSError):
            self._loop.remove_reader(self._listener.fileno())

    async def wait_closed(self) -> None:
        """Wait until none is taken any more."""
        await asyncio.wait([self._task, *self._beginning])

    async def _run(self) -> None:
        waiting = 0  # connections in a row that were there when they were asked for
        while True:
            while self._connections.full:
                made_room = self._connections.make_room()
                await asyncio.sleep(0 if made_room else BACK_OFF)
            try:
                try:
                    client, _ = self._listener.accept()
                    client.setblocking(False)
                    waiting += 1
                except BlockingIOError:
                    waiting = 0
                    client, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno not in _LEFT:
                    self._connections.warn("no connection can be taken: %s", error)
                    self._connections.make_room()
                    await asyncio.sleep(BACK_OFF)
                continue
            if waiting > CROWD and waiting % CROWD and has_left(client):
                client.close()
                continue
            self._connections.beginning += 1
            task = self._loop.create_task(self._begin(client))
            self._beginning.add(task)
            task.add_done_callback(self._begun)
            if waiting % AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _begin(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._made, client)
        except OSError:
            client.close()

    def _begun(self, task: asyncio.Task[None]) -> None:
        self._beginning.discard(task)
        self._connections.beginning -= 1


def has_left(client: socket.socket) -> bool:
    """Whether a client has ended its connection or its direction of it; False if not known."""
    if sys.platform != "linux":
        return False
    try:
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED
    except OSError:
        return False


def prepare(listener: socket.socket) -> None:
    """Options of its connections: small pieces go at once, and clients that vanish are noticed."""
    if listener.family not in (socket.AF_INET, socket.AF_INET6):
        return
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_NODELAY": 1, "TCP_NOTSENT_LOWAT": NOT_SENT, **KEEP_ALIVE}
    for name, value in options.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
