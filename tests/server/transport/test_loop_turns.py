"""Clients on the event loop: each has its turn for a short time, and polls are frequent."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from contextvars import Context, copy_context
from types import SimpleNamespace

import pytest

from tests.server.conftest import LIMIT
from trinity.server.transport import accepting, loop_turns
from trinity.server.transport.accepting import Accepting
from trinity.server.transport.connections import Connections
from trinity.server.transport.loop_turns import CLIENT, MORE, SECONDS, SECONDS_OF_ONE, LoopTurns


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine on an event loop with turns."""
    loop = asyncio.new_event_loop()
    LoopTurns.install(loop)
    try:
        loop.run_until_complete(asyncio.wait_for(main(), LIMIT))
    finally:
        loop.close()


def context_of(client: str) -> Context:
    context = copy_context()
    context.run(CLIENT.set, client)
    return context


class Clock:
    """A clock that only callbacks advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.names: list[str] = []
        monkeypatch.setattr(loop_turns, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def work(self, name: str, seconds: float) -> None:
        """Take some time."""
        self.names.append(name)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop with turns, which the test runs by ``turn``."""
    made = asyncio.new_event_loop()
    LoopTurns.install(made)
    yield made
    made.close()


def turn(loop: asyncio.AbstractEventLoop) -> list[asyncio.Handle]:
    """Run the callbacks of one turn, as asyncio does; those that ran."""
    ready: LoopTurns = loop._ready  # type: ignore[attr-defined]
    ran = []
    for _ in range(len(ready)):
        handle = ready.popleft()
        if not handle.cancelled():
            handle._run()
            ran.append(handle)
    return ran


def add(
    loop: asyncio.AbstractEventLoop, client: str, call: Callable[..., object], *args: object
) -> asyncio.Handle:
    return loop.call_soon(call, *args, context=context_of(client))


def test_clients_take_turns(clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
    for number in range(5):
        add(loop, "many", clock.work, f"m{number}", SECONDS_OF_ONE)
    for number in range(2):
        add(loop, "other", clock.work, f"o{number}", SECONDS_OF_ONE)
    while turn(loop):
        continue
    assert clock.names == ["m0", "o0", "m1", "o1", "m2", "m3", "m4"]


def test_a_client_runs_what_it_schedules_while_it_has_its_turn(
    clock: Clock, loop: asyncio.AbstractEventLoop
) -> None:
    def chain(name: str, length: int, seconds: float) -> None:
        clock.work(name, seconds)
        if length > 1:
            add(loop, name, chain, name, length - 1, seconds)

    add(loop, "a", chain, "a", 4, SECONDS_OF_ONE / 4)
    add(loop, "b", chain, "b", 4, SECONDS_OF_ONE / 4)
    turn(loop)
    assert clock.names == [*"aaaabbbb"]


def test_a_turn_ends_in_time(clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
    for number in range(10):
        add(loop, str(number), clock.work, str(number), SECONDS / 4)
    assert [len(turn(loop)) for _ in range(3)] == [4, 4, 2]
    assert clock.names == [*"0123456789"]


def test_a_slow_callback_does_not_stop_the_loop(
    clock: Clock, loop: asyncio.AbstractEventLoop
) -> None:
    for number in range(3):
        add(loop, "a", clock.work, str(number), 10 * SECONDS)
    assert [len(turn(loop)) for _ in range(3)] == [1, 1, 1]


def test_callbacks_without_end_leave_room_for_polls(
    clock: Clock, loop: asyncio.AbstractEventLoop
) -> None:
    def again() -> None:
        add(loop, "a", again)

    add(loop, "a", again)
    assert len(turn(loop)) == 1 + MORE


def test_a_reader_that_waits_is_there_once(clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
    reader = add(loop, "a", clock.work, "x", 0.0)
    ready: LoopTurns = loop._ready  # type: ignore[attr-defined]
    for _ in range(3):
        ready.append(reader)
    assert turn(loop) == [reader]
    ready.append(reader)
    assert turn(loop) == [reader]


def test_an_event_loop_with_turns_runs_tasks_threads_and_timers() -> None:
    seen: list[str] = []

    async def task(client: str) -> None:
        assert CLIENT.get() == client
        for _ in range(50):
            await asyncio.sleep(0)
        seen.append(client)
        await asyncio.sleep(0.001)
        seen.append(await asyncio.to_thread(lambda: f"{CLIENT.get()} in a thread"))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(done.set,))
        thread.start()
        async with asyncio.TaskGroup() as group:
            for client in ("a", "b", ""):
                group.create_task(task(client), context=context_of(client))
        await done.wait()
        thread.join()

    run(main)
    assert sorted(seen) == ["", " in a thread", "a", "a in a thread", "b", "b in a thread"]


def test_each_socket_gets_its_data_beside_a_busy_client() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        pairs = [socket.socketpair() for _ in range(20)]
        busy = [True]

        def spin() -> None:
            if busy[0]:
                loop.call_soon(spin)

        for _ in range(20):
            loop.call_soon(spin, context=context_of("busy"))
        for number, (one, other) in enumerate(pairs):
            one.setblocking(False)
            other.sendall(b"%d" % number)
        got = await asyncio.gather(*(loop.sock_recv(one, 9) for one, _ in pairs))
        assert got == [b"%d" % number for number in range(20)]
        busy[0] = False
        for pair in pairs:
            for one in pair:
                one.close()

    run(main)


@pytest.mark.skipif(sys.platform != "linux", reason="every 127.x.x.x is an address of its own")
def test_a_connection_begins_before_those_of_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 connections wait to be accepted, then one of another client arrives."""
    monkeypatch.setattr(accepting, "TURN_SECONDS", LIMIT)  # all are accepted at once
    monkeypatch.setattr(loop_turns, "SECONDS_OF_ONE", 0.0)  # one callback in each client's turn
    begun: list[asyncio.BaseTransport] = []

    class Begun(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            begun.append(transport)

    async def main() -> None:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        for source in (*["127.0.0.2"] * 40, "127.0.0.1"):
            client = stack.enter_context(socket.socket())
            client.bind((source, 0))
            client.connect(listener.getsockname())
        accepting = Accepting(listener, Connections(512), Begun)
        while len(begun) < 41:
            await asyncio.sleep(0)
        sources = [transport.get_extra_info("peername")[0] for transport in begun]
        assert sources.index("127.0.0.1") <= 3
        accepting.close()
        await accepting.wait_closed()
        for transport in begun:
            transport.close()
        await asyncio.sleep(0.01)

    with ExitStack() as stack:
        run(main)
