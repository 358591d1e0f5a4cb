"""The server's process: uvicorn with this package's connections, signals, and an end in time."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any

import uvicorn

from trinity.errors import InputError
from trinity.runtime.paging import give_back_heap
from trinity.server.errors import ApiError
from trinity.server.settings import ServerOptions
from trinity.server.transport.accepting import BACKLOG, Accepting
from trinity.server.transport.connection import Connection, written_to
from trinity.server.transport.connections import Connections
from trinity.server.transport.loop_turns import LoopTurns

# Seconds for which an idle connection is kept open.
KEPT_SECONDS = 75
# Tenths of a second between two times that freed memory is returned, if no request is running.
GIVE_BACK_TICKS = 20
# Seconds for cancelled requests to say so to their clients.
LAST_SECONDS = 0.5
# Seconds for cancelled tasks to end when the server ends.
TASK_SECONDS = 1.0
log = logging.getLogger("trinity.server")


class Server(uvicorn.Server):
    """A server that shuts down cleanly at the first signal, and at once at the second.

    It ends within ``drain`` + 5 s, even if clients, threads of requests or models do not. SIGHUP
    calls ``reload``, unless the terminal was closed, which ends the process.
    """

    ended_by: int | None = None

    def __init__(
        self, config: uvicorn.Config, most_connections: int | None = None,
        reload: Callable[[], Awaitable[None]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config)
        self._reload = reload  # what SIGHUP does
        self._has_terminal, self._hung_up = False, False
        self._reloading: asyncio.Task[None] | None = None
        self.server_state = self._connections = Connections(most_connections)
        self._given_back = 0  # connections and answers until then

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the end. Threads that still compute then are abandoned.

        ``asyncio.run`` would wait for them, and for tasks that do not end, without a limit.
        """
        loop = asyncio.new_event_loop()
        LoopTurns.install(loop)
        # As many threads as asyncio has by default.
        executor = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), "trinity-request")
        loop.set_default_executor(executor)
        try:
            loop.run_until_complete(self.serve(sockets=sockets))
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            try:
                loop.run_until_complete(end_tasks(TASK_SECONDS))
            finally:
                loop.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections."""
        await super().startup(sockets=[])  # asyncio would accept too many connections
        made = partial(Connection, self.config, self._connections, self.lifespan.state)
        taking = [Accepting(listener, self._connections, made) for listener in sockets or ()]
        self.servers = taking  # type: ignore[assignment]

    async def on_tick(self, counter: int) -> bool:
        """Periodic work, ten times a second. Returns whether the server must end."""
        if counter % 10 == 0:
            self._connections.sweep()
        if counter % GIVE_BACK_TICKS == 0:
            self._give_back()
        if self._hung_up and self._reload is not None:
            self._hung_up = False
            self._reloading = asyncio.create_task(logged(self._reload))
        return await super().on_tick(counter)

    def _give_back(self) -> None:
        """Return memory to the system once the requests that used it have ended."""
        state = self._connections
        done = state.total + state.total_requests
        # Streams that do not end are not waited for.
        if done != self._given_back and len(state.tasks) <= len(state.ending):
            self._given_back = done
            asyncio.get_running_loop().run_in_executor(None, give_back_heap)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more requests, let running ones end, then close the rest."""
        for end in list(self._connections.ending):
            end()
        await super().shutdown(sockets)
        if self._connections.tasks:
            await asyncio.wait(self._connections.tasks, timeout=LAST_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take no more requests; the second time wait for none."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self.ended_by = sig

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        """Reload soon; if the terminal was closed, end as a process without this handler does."""
        self._hung_up = True
        if self._has_terminal and not has_terminal():
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals end the server while it runs; its caller then continues.

        Only the main thread receives them.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        if self._reload is not None and sys.platform != "win32":
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self.handle_hangup)
            # `nohup` lets programs ignore SIGHUP: such a server does not end with its terminal.
            ignored = before[signal.SIGHUP] == signal.SIG_IGN
            self._has_terminal = not ignored and has_terminal()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def has_terminal() -> bool:
    """Whether the process has a terminal that has not been closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def logged(reload: Callable[[], Awaitable[None]]) -> None:
    """Reload; an error has been logged."""
    with suppress(ApiError):
        await reload()


async def end_tasks(seconds: float) -> None:
    """Cancel all other tasks; log those that have not ended after ``seconds``."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        _, left = await asyncio.wait(tasks, timeout=seconds)
        for task in left:
            log.error("the server ended before its task %r", task)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().shutdown_asyncgens()


def config(app: Any, options: ServerOptions) -> uvicorn.Config:
    """Return uvicorn's configuration."""
    return uvicorn.Config(
        written_to(app), http=Connection, ws="none", lifespan="on", log_config=None,
        log_level="error", access_log=False, server_header=False, proxy_headers=False,
        timeout_keep_alive=KEPT_SECONDS, timeout_graceful_shutdown=round(options.drain),
        h11_max_incomplete_event_size=options.max_header,
        ws_max_size=max(options.max_body, options.max_audio),
    )  # fmt: skip


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens. Raises: InputError where the address cannot be had."""
    try:
        addresses = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = addresses[0]
        listener = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = f"another program uses the port; give another one, such as --port {port + 1}"
        elif error.errno in (errno.EACCES, errno.EPERM):
            remedy = "ports below 1024 need privileges; give another one, such as --port 8080"
        else:
            remedy = f"{error.strerror}; give an address of this machine, such as --host 127.0.0.1"
        raise InputError(f"cannot listen on {host}:{port}: {remedy}") from error
    with listener:
        yield listener
