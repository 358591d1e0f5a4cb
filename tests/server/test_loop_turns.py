"""Clients' work on the event loop: a limited time in each turn of it, in equal parts."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import pytest

from tests.server.conftest import LIMIT
from trinity.server import loop_turns
from trinity.server.accepting import BEGIN_SECONDS, Accepting
from trinity.server.connections import Connections
from trinity.server.loop_turns import SECONDS, LoopTurns


class Done:
    """The functions that have run, and the turn of the event loop in which each ran."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.turns: list[int] = []
        self._turn = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._count)

    def _count(self) -> None:
        self._turn += 1
        if self._turn < 1000:
            self._loop.call_soon(self._count)

    def work(self, name: str, seconds: float = SECONDS) -> Callable[[], float]:
        def run() -> float:
            self.names.append(name)
            self.turns.append(self._turn)
            return seconds

        return run


def test_a_function_runs_at_once_where_there_is_time() -> None:
    async def test() -> None:
        done, shared = Done(), LoopTurns()
        for name in "abc":
            shared.run(name, done.work(name, 0.0))
            assert done.names[-1] == name

    asyncio.run(test())


def test_clients_take_turns() -> None:
    async def test() -> None:
        done, shared = Done(), LoopTurns()
        for number in range(6):
            shared.run("many", done.work(f"m{number}"))
        shared.run("other", done.work("o0"))
        shared.run("other", done.work("o1"))
        assert done.names == ["m0"]
        while len(done.names) < 8:
            await asyncio.sleep(0)
        assert done.names == ["m0", "m1", "o0", "m2", "o1", "m3", "m4", "m5"]
        # One in each turn, as each takes the time of a whole one.
        assert len(set(done.turns)) == len(done.turns)

    asyncio.run(test())


def test_processor_time_and_what_follows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(loop_turns.time, "thread_time", lambda: clock[0])

    async def test() -> None:
        done, shared = Done(), LoopTurns()

        def busy(name: str) -> float:
            clock[0] += SECONDS / 4
            return done.work(name, SECONDS / 4)()

        for number in range(6):
            shared.run("a", partial(busy, f"a{number}"))
        assert done.names == ["a0", "a1"]  # which take half of a turn each
        while len(done.names) < 6:
            await asyncio.sleep(0)
        first = done.turns[2]
        assert done.turns[2:] == [first, first, first + 1, first + 1]

    asyncio.run(test())


def test_a_function_may_wait_for_its_next_turn() -> None:
    async def test() -> None:
        done, shared = Done(), LoopTurns()

        def again() -> float:
            if len(done.names) < 5:
                shared.later("a", again)
            return done.work("a", 0.0)()

        shared.run("a", again)
        while len(done.names) < 6:
            await asyncio.sleep(0)
        shared.run("b", done.work("b", 0.0))
        assert done.names == [*"aaaaaab"]

    asyncio.run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="every 127.x.x.x is an address of its own")
def test_a_connection_begins_before_those_of_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 connections wait to be accepted, then one of another client arrives."""
    monkeypatch.setattr(loop_turns, "SECONDS", BEGIN_SECONDS)  # one begins in each turn
    begun: list[asyncio.BaseTransport] = []

    class Begun(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            begun.append(transport)

    async def test(stack: ExitStack) -> None:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=64))
        for source in (*["127.0.0.2"] * 40, "127.0.0.1"):
            client = stack.enter_context(socket.socket())
            client.bind((source, 0))
            client.connect(listener.getsockname())
        accepting = Accepting(listener, Connections(512), Begun)
        async with asyncio.timeout(LIMIT):
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
        asyncio.run(test(stack))
