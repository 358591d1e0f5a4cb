"""Accept connections from a listening socket while there is room."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from trinity.server.connections import Connections

# Seconds until the next attempt if the system refuses a connection or there is no room.
BACK_OFF = 0.01
# Connections that may wait to be accepted.
BACKLOG = 2048
# TCP keep-alive: seconds until the first probe, between probes, and the number of probes.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# Unsent bytes that the system buffers. The buffer is small, so that a slow client is noticed.
NOT_SENT = 128 << 10
# After so many waiting connections in a row, those whose clients have gone are closed.
CROWD = 16
# Connections that are accepted in one turn of the event loop.
AT_ONCE = 8
# Value of TCP_INFO on Linux: both directions are open.
_ESTABLISHED = 1
# The client disconnected before its connection was accepted.
_LEFT = (errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.ENOTCONN)


class Accepting:
    """Accepts connections of ``listener`` in the running loop; ``made`` makes their protocols.

    asyncio's servers accept every connection. If descriptors run out, they log a traceback for each
    waiting connection.
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
        """Accept no more connections. The caller closes the socket."""
        self._task.cancel()
        # Another socket may get the same descriptor later.
        with suppress(NotImplementedError, ValueError, OSError):
            self._loop.remove_reader(self._listener.fileno())

    async def wait_closed(self) -> None:
        """Wait until no connection is being accepted."""
        await asyncio.wait([self._task, *self._beginning])

    async def _run(self) -> None:
        waiting = 0  # connections in a row that were already waiting
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
    """Whether a client has closed its connection or its sending direction. False if unknown."""
    if sys.platform != "linux":
        return False
    try:
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED
    except OSError:
        return False


def prepare(listener: socket.socket) -> None:
    """Set TCP options: send small chunks immediately, and notice clients that vanish."""
    if listener.family not in (socket.AF_INET, socket.AF_INET6):
        return
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_NODELAY": 1, "TCP_NOTSENT_LOWAT": NOT_SENT, **KEEP_ALIVE}
    for name, value in options.items():
        if hasattr(socket, name):
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
