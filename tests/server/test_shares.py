"""Threads of which every client gets an equal share of time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any

import pytest

from tests.server.conftest import LIMIT, wait_for
from trinity.server import shares
from trinity.server.errors import ApiError
from trinity.server.shares import Shares


class Work:
    """Functions that end when they may, and the order in which they began."""

    def __init__(self, shares: Shares) -> None:
        self.begun: list[str] = []
        self._shares = shares
        self._may: dict[str, threading.Event] = {}

    def submit(self, client: bytes, name: str) -> Future[str]:
        self._may[name] = threading.Event()

        def function() -> str:
            self.begun.append(name)
            assert self._may[name].wait(LIMIT)
            return name

        return self._shares.submit(client, function)

    def end(self, *names: str) -> None:
        for name in names:
            self._may[name].set()


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work(Shares(2, "test-share"))
    yield made
    made.end(*made._may)


def test_one_client_leaves_a_thread_to_others(work: Work) -> None:
    heavy = [work.submit(b"heavy", f"h{i}") for i in range(20)]
    wait_for(lambda: work.begun == ["h0"])
    other = work.submit(b"other", "o")
    wait_for(lambda: work.begun == ["h0", "o"])
    work.end("o")
    assert other.result(LIMIT) == "o"
    assert work.begun == ["h0", "o"]
    work.end(*(f"h{i}" for i in range(20)))
    assert [one.result(LIMIT) for one in heavy] == [f"h{i}" for i in range(20)]


def test_a_newcomer_is_next(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients fill both threads and have used time; a third one goes before their next."""
    clock = [0.0]
    monkeypatch.setattr(shares.time, "monotonic", lambda: clock[0])
    for name in ("a", "b"):
        for i in range(3):
            work.submit(name.encode(), f"{name}{i}")
    wait_for(lambda: len(work.begun) == 2)
    clock[0] = 5.0
    work.end("a0")
    wait_for(lambda: work.begun[2:] == ["a1"])  # b has one thread already, which is the most
    work.submit(b"c", "c0")
    clock[0] = 6.0
    work.end("b0")
    wait_for(lambda: len(work.begun) == 4)
    assert work.begun[3] == "c0"  # 0 s, before b's 6 s


def test_what_is_cancelled_is_not_begun(work: Work) -> None:
    work.submit(b"a", "a0")
    waiting = work.submit(b"a", "a1")
    last = work.submit(b"a", "a2")
    assert waiting.cancel()
    work.end("a0", "a2")
    assert last.result(LIMIT) == "a2"
    assert work.begun == ["a0", "a2"]


def test_too_many_of_one_client_are_refused(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MOST_WAITING_OF_ONE", 2)
    monkeypatch.setattr(shares, "MOST_WAITING", 4)
    work.submit(b"a", "a0")
    waiting = [work.submit(b"a", f"a{i}") for i in (1, 2)]
    with pytest.raises(ApiError) as refused:
        work.submit(b"a", "a3")
    assert refused.value.status == 429
    assert int(refused.value.headers["Retry-After"]) >= 1
    work.submit(b"b", "b0")  # another client is not refused
    waiting[0].cancel()
    work.submit(b"a", "a4")  # nor this one, once one of its waits no longer


def test_it_runs_in_the_callers_context(work: Work) -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    variable.set(7)
    assert Shares(2, "test-share").submit(b"", variable.get).result(LIMIT) == 7


def test_an_exception_is_the_callers() -> None:
    made = Shares(2, "test-share")

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        made.submit(b"", fail).result(LIMIT)
    assert made.submit(b"", lambda: 1).result(LIMIT) == 1


def test_without_a_thread_it_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Shares(2, "test-share")

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        refused = made.submit(b"", lambda: 1)
        with pytest.raises(ApiError) as caught:
            refused.result(LIMIT)
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (503, "2")
    assert made.submit(b"", lambda: 1).result(LIMIT) == 1


def test_few_clients_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MOST_KNOWN", 10)
    made = Shares(2, "test-share")
    may = threading.Event()
    long: Callable[[], Any] = lambda: may.wait(LIMIT)  # noqa: E731
    busy = made.submit(b"long", long)
    for number in range(50):
        made.submit(b"%d" % number, lambda: None).result(LIMIT)
    wait_for(lambda: len(made._clients) <= 10)
    assert b"long" in made._clients
    may.set()
    busy.result(LIMIT)
    wait_for(lambda: not made._clients)
