"""Accept connections from a listening socket while there is room."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial

from trinity.server.caller import network_of
from trinity.server.transport.connections import Connections
from trinity.server.transport.loop_turns import CLIENT

# Seconds until the next attempt if the system refuses a connection or there is no room.
BACK_OFF = 0.005
# Connections that may wait to be accepted.
BACKLOG = 2048
# TCP keep-alive: seconds until the first probe, between probes, and the number of probes.
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
# Unsent bytes that the system buffers. The buffer is small, so that a slow client is noticed.
NOT_SENT = 128 << 10
# Seconds for which connections are accepted before other work has its turn.
TURN_SECONDS = 0.001
# Value of TCP_INFO on Linux: both directions are open.
_ESTABLISHED = 1
# The client disconnected before its connection was accepted.
_LEFT = (errno.ECONNABORTED, errno.EINTR, errno.EPROTO, errno.ENOTCONN)


class Accepted:
    """An accepted connection that waits for its client's turn to begin."""

    def __init__(self, client: socket.socket, network: str) -> None:
        self.client, self.network = client, network
        self.is_closed = False
        self.since = time.monotonic()

    @property
    def waiting_since(self) -> float | None:
        """The time of its acceptance; None if its client has sent bytes or has disconnected."""
        try:
            self.client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return self.since
        except OSError:
            pass
        return None

    def give_up(self) -> None:
        """Close it."""
        self.is_closed = True
        self.client.close()


class Accepting:
    """Accepts connections of ``listener`` in the running loop; ``made`` makes their protocols.

    asyncio's servers accept every connection. If descriptors run out, they log a traceback for each
    waiting connection. Here connections are accepted at once, because the system does not tell the
    client's address before, and are started when it is their client's turn.
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
        for accepted in self._connections.accepted:
            accepted.give_up()
        self._connections.accepted.clear()
        # Another socket may get the same descriptor later.
        with suppress(NotImplementedError, ValueError, OSError):
            self._loop.remove_reader(self._listener.fileno())

    async def wait_closed(self) -> None:
        """Wait until no connection is being accepted."""
        await asyncio.wait([self._task, *self._beginning])

    async def _run(self) -> None:
        ends = time.perf_counter() + TURN_SECONDS
        while True:
            while self._connections.full:
                room_comes = is_waited_for(self._listener) and (
                    self._connections.drop_accepted() or self._connections.make_room()
                )
                await asyncio.sleep(0 if room_comes else BACK_OFF)
            try:
                try:
                    client, address = self._listener.accept()
                except BlockingIOError:
                    client, address = await self._loop.sock_accept(self._listener)
                    ends = time.perf_counter() + TURN_SECONDS
            except OSError as error:
                if error.errno not in _LEFT:
                    self._connections.warn("cannot accept connections: %s", error)
                    self._connections.make_room()
                    await asyncio.sleep(BACK_OFF)
                continue
            client.setblocking(False)
            accepted = Accepted(client, network_of({"client": address}))
            self._connections.accepted.add(accepted)
            context = copy_context()
            context.run(CLIENT.set, accepted.network)
            self._loop.call_soon(self._begin, accepted, context=context)
            if time.perf_counter() >= ends:
                await asyncio.sleep(0)
                ends = time.perf_counter() + TURN_SECONDS

    def _begin(self, accepted: Accepted) -> None:
        self._connections.accepted.discard(accepted)
        if accepted.is_closed or has_left(accepted.client):
            accepted.client.close()
            return
        self._connections.beginning.add(accepted)
        task = self._loop.create_task(self._connect(accepted.client))
        self._beginning.add(task)
        task.add_done_callback(partial(self._begun, accepted))

    async def _connect(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._made, client)
        except OSError:
            client.close()

    def _begun(self, accepted: Accepted, task: asyncio.Task[None]) -> None:
        self._beginning.discard(task)
        self._connections.beginning.discard(accepted)


def is_waited_for(listener: socket.socket) -> bool:
    """Whether a connection waits to be accepted. True if unknown."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return bool(poll.poll(0))


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
