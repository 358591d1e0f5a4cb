"""Takes connections from a listening socket, as many as there is room for."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress

from trinity.server.connections import Connections

# Seconds until another try where the system refuses a connection, or all places are taken.
BACK_OFF = 0.05
# Connections that wait for the server to take them.
BACKLOG = 2048
# The client has gone before its connection was taken.
_LEFT = (errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.ENOTCONN)


class Accepting:
    """Gives each connection of ``listener`` a protocol that ``made`` makes, in the running loop.

    asyncio's own servers take every connection there is, and where descriptors run out they log a
    traceback for each place of the backlog.
    """

    def __init__(
        self, listener: socket.socket, connections: Connections,
        made: Callable[[], asyncio.Protocol],
    ) -> None:  # fmt: skip
        self._listener = listener
        self._connections = connections
        self._made = made
        self._loop = asyncio.get_running_loop()
        self._beginning = set[asyncio.Task[None]]()
        listener.setblocking(False)
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
        while True:
            while self._connections.full:
                made_room = self._connections.make_room()
                await asyncio.sleep(0 if made_room else BACK_OFF)
            try:
                client, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:
                if error.errno not in _LEFT:
                    self._connections.warn("no connection can be taken: %s", error)
                    self._connections.make_room()
                    await asyncio.sleep(BACK_OFF)
                continue
            self._connections.beginning += 1
            task = self._loop.create_task(self._begin(client))
            self._beginning.add(task)
            task.add_done_callback(self._begun)
            await asyncio.sleep(0)

    async def _begin(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._made, client)
        except OSError:
            client.close()

    def _begun(self, task: asyncio.Task[None]) -> None:
        self._beginning.discard(task)
        self._connections.beginning -= 1
