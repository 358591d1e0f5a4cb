"""Slow grammars of one client delay neither other clients' grammars nor other requests."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.server.asgi import Asked
from tests.server.conftest import LIMIT, MakeApp
from trinity.grammar import trial
from trinity.grammar.limits import MEMORY_BYTES, SECONDS
from trinity.grammar.trial import PROCESSES, Outcomes
from trinity.processes.confined import Confined
from trinity.server.caller import network_of

CHAT = "/v1/chat/completions"
FIRST, SECOND = "first-key-0123456789", "second-key-0123456789"
ASK = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT):
            await test()

    asyncio.run(limited())


def bearer(key: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {key}")]


def regex(pattern: str) -> dict[str, Any]:
    return {**ASK, "structured_outputs": {"regex": pattern}}


class Held:
    """Blocks the compilation of grammars that contain "heavy" until a test allows it."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.begun = 0
        self.at_once = self.most = 0
        self._call = trial._processes.call
        self._lock = threading.Lock()

    def call(self, request: Any, **options: Any) -> Any:
        if "heavy" not in str(request):
            return self._call(request, **options)
        with self._lock:
            self.begun += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        assert self.may.wait(LIMIT)
        with self._lock:
            self.at_once -= 1
        return self._call(request, **options)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held()
    monkeypatch.setattr(trial._processes, "call", made.call)
    monkeypatch.setattr(trial, "_outcomes", Outcomes(trial.KNOWN, trial.KNOWN_BYTES))
    yield made
    made.may.set()


@pytest.mark.full
def test_another_key_is_served_beside_sixty_heavy_grammars(make: MakeApp, held: Held) -> None:
    app = make(api_key=(FIRST, SECOND))

    async def test() -> None:
        heavy = [
            Asked(app, CHAT, regex(f"heavy{number}"), headers=bearer(FIRST)) for number in range(60)
        ]
        while not held.begun:
            await asyncio.sleep(0.002)
        others = [
            Asked(app, CHAT, body, headers=bearer(key))
            for key in (FIRST, SECOND)
            for body in (ASK, ASK)
        ] + [Asked(app, CHAT, regex("light|lights"), headers=bearer(SECOND))]
        assert [(await one.whole()).status for one in others] == [200] * 5
        assert not any(one.done.done() for one in heavy)
        held.may.set()
        assert {(await one.whole()).status for one in heavy} == {200}
        assert held.most == PROCESSES - 1

    run(test)


def test_a_grammar_that_is_known_waits_for_none(make: MakeApp, held: Held) -> None:
    app = make()

    async def test() -> None:
        assert (await Asked(app, CHAT, regex("light")).whole()).status == 200
        heavy = Asked(app, CHAT, regex("heavy"))
        while not held.begun:
            await asyncio.sleep(0.002)
        assert (await Asked(app, CHAT, regex("light")).whole()).status == 200
        assert not heavy.done.done()
        held.may.set()
        await heavy.whole()

    run(test)


def test_equal_requests_are_compiled_once(make: MakeApp, held: Held) -> None:
    app = make()
    bad = regex("heavy(")

    async def test() -> None:
        asked = [Asked(app, CHAT, bad) for _ in range(10)]
        held.may.set()
        for one in asked:
            assert (await one.whole()).status == 400
            assert "unclosed group" in one.json["error"]["message"]
        assert held.begun == 1

    run(test)


@pytest.mark.parametrize("refused", ["process", "thread", "default thread"])
def test_without_a_process_or_thread_it_is_503(
    make: MakeApp, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    app = make()
    pool = Confined(
        "trinity.grammar.compiling", memory_bytes=MEMORY_BYTES, seconds=SECONDS, processes=2
    )
    monkeypatch.setattr(trial, "_processes", pool)
    monkeypatch.setattr(trial, "_outcomes", Outcomes(trial.KNOWN, trial.KNOWN_BYTES))
    start = threading.Thread.start

    def no_process(*_: Any, **__: Any) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def no_thread(thread: threading.Thread) -> None:
        if refused == "thread" and thread.name != "trinity-grammar":
            start(thread)
            return
        raise RuntimeError("can't start new thread")

    async def test() -> None:
        with monkeypatch.context() as patch:
            if refused == "process":
                patch.setattr(subprocess, "Popen", no_process)
            else:
                patch.setattr(threading.Thread, "start", no_thread)
            one = await Asked(app, CHAT, regex("[0-9]a")).whole()
        assert one.status == 503, one.bytes
        assert dict(one.sent[0]["headers"])[b"retry-after"] == b"2"
        assert one.json["error"]["type"] == "unavailable_error"
        assert (await Asked(app, CHAT, regex("[0-9]a")).whole()).status == 200

    run(test)
    pool.close()


def test_too_many_grammars_of_one_client_are_429(
    make: MakeApp, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trinity.server.threads.MOST_GRAMMARS_OF_ONE", 3)
    app = make(max_queue=100)

    async def test() -> None:
        first = Asked(app, CHAT, regex("heavy"))
        while not held.begun:
            await asyncio.sleep(0.002)
        asked = [Asked(app, CHAT, regex(f"heavy{i}")) for i in range(5)]
        while sum(one.done.done() for one in asked) < 2:
            await asyncio.sleep(0.002)
        held.may.set()
        statuses = sorted([(await one.whole()).status for one in [first, *asked]])
        assert statuses == [200] * 4 + [429] * 2

    run(test)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ffff:0:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_clients_by_address(one: str, other: str, same: bool) -> None:
    """All addresses of a /64 network count as one client (RFC 4291, section 2.5.4)."""
    clients = [network_of({"client": (host, 1)}) for host in (one, other)]
    assert (clients[0] == clients[1]) == same
