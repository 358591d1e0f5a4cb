"""Threads that give each client an equal share of time."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from tests.server.conftest import LIMIT, wait_for
from trinity.server import threads
from trinity.server.errors import ApiError
from trinity.server.threads import Shares, Threads


def shares_of(threads: int, most: int = 100, most_of_one: int = 50) -> Shares:
    return Shares("test-share", threads, "functions", most, most_of_one)


class Work:
    """Functions that end on command, and the order in which they began."""

    def __init__(self, shares: Shares) -> None:
        self.begun: list[str] = []
        self._shares = shares
        self._may: dict[str, threading.Event] = {}

    def submit(self, client: str, name: str) -> Future[str]:
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
    made = Work(shares_of(2))
    yield made
    made.end(*made._may)


def test_one_client_leaves_a_thread_to_others(work: Work) -> None:
    heavy = [work.submit("heavy", f"h{i}") for i in range(20)]
    wait_for(lambda: work.begun == ["h0"])
    other = work.submit("other", "o")
    wait_for(lambda: work.begun == ["h0", "o"])
    work.end("o")
    assert other.result(LIMIT) == "o"
    assert work.begun == ["h0", "o"]
    work.end(*(f"h{i}" for i in range(20)))
    assert [one.result(LIMIT) for one in heavy] == [f"h{i}" for i in range(20)]


def test_a_newcomer_is_next(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients occupy both threads and have used time; a third goes before their next task."""
    clock = [0.0]
    # Of this module alone: an event loop that asks the time meanwhile would sleep for hours.
    own = SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep)
    monkeypatch.setattr(threads, "time", own)
    for name in ("a", "b"):
        for i in range(3):
            work.submit(name, f"{name}{i}")
    wait_for(lambda: len(work.begun) == 2)
    clock[0] = 5.0
    work.end("a0")
    wait_for(lambda: work.begun[2:] == ["a1"])  # b has one thread already, which is the most
    work.submit("c", "c0")
    clock[0] = 6.0
    work.end("b0")
    wait_for(lambda: len(work.begun) == 4)
    assert work.begun[3] == "c0"  # 0 s, before b's 6 s


def test_what_is_cancelled_is_not_begun(work: Work) -> None:
    work.submit("a", "a0")
    waiting = work.submit("a", "a1")
    last = work.submit("a", "a2")
    assert waiting.cancel()
    work.end("a0", "a2")
    assert last.result(LIMIT) == "a2"
    assert work.begun == ["a0", "a2"]


def test_too_many_of_one_client_are_refused() -> None:
    work = Work(shares_of(2, 4, 2))
    work.submit("a", "a0")
    waiting = [work.submit("a", f"a{i}") for i in (1, 2)]
    with pytest.raises(ApiError) as refused:
        work.submit("a", "a3")
    assert refused.value.status == 429
    assert int(refused.value.headers["Retry-After"]) >= 1
    work.submit("b", "b0")  # another client is not refused
    waiting[0].cancel()
    work.submit("a", "a4")  # nor this one, once one of its waits no longer
    work.end("a0", "a1", "a2", "a4", "b0")


def test_it_runs_in_the_callers_context(work: Work) -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    variable.set(7)
    assert shares_of(2).submit("", variable.get).result(LIMIT) == 7


def test_an_exception_is_the_callers() -> None:
    made = shares_of(2)

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        made.submit("", fail).result(LIMIT)
    assert made.submit("", lambda: 1).result(LIMIT) == 1


def test_without_a_thread_it_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    made = shares_of(2)

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        refused = made.submit("", lambda: 1)
        with pytest.raises(ApiError) as caught:
            refused.result(LIMIT)
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (503, "2")
    assert made.submit("", lambda: 1).result(LIMIT) == 1


def test_few_clients_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "MOST_KNOWN", 10)
    made = shares_of(2)
    may = threading.Event()
    long: Callable[[], Any] = lambda: may.wait(LIMIT)  # noqa: E731
    busy = made.submit("long", long)
    for number in range(50):
        made.submit(str(number), lambda: None).result(LIMIT)
    wait_for(lambda: len(made._clients) <= 10)
    assert "long" in made._clients
    may.set()
    busy.result(LIMIT)
    wait_for(lambda: not made._clients)


def test_a_thread_goes_on_with_what_waits() -> None:
    made = shares_of(1)
    may = threading.Event()
    first = made.submit("a", lambda: may.wait(LIMIT) and threading.get_ident())
    rest = [made.submit("a", threading.get_ident) for _ in range(5)]
    may.set()
    assert {one.result(LIMIT) for one in (first, *rest)} == {first.result()}


def test_one_thread_is_everybodys() -> None:
    """With one thread, the client that has used less time is next."""
    one = Work(shares_of(1))
    for i in range(3):
        one.submit("a", f"a{i}")
    wait_for(lambda: one.begun == ["a0"])
    last = one.submit("b", "b0")
    one.end("a0", "a1", "a2", "b0")
    assert last.result(LIMIT) == "b0"
    assert one.begun[:2] == ["a0", "b0"]


def test_a_thread_that_waits_refers_to_no_function() -> None:
    made = Shares("test-waiting", 2, "functions", 100, 50)

    class Large:
        """An object that a function refers to."""

    large = Large()
    seen = weakref.ref(large)
    made.submit("a", lambda kept=large: None).result(LIMIT)  # type: ignore[misc]
    del large
    wait_for(lambda: seen() is None)
    assert any(thread.name == "test-waiting" for thread in threading.enumerate())
    made.close()
    wait_for(lambda: all(thread.name != "test-waiting" for thread in threading.enumerate()))


def test_one_thread_runs_all_while_it_lives() -> None:
    """A second thread would leave the memory of the first one's heap unused."""
    shares, seen, enough = shares_of(1), list[int](), threading.Event()

    def submit(done: Future[int] | None = None) -> None:
        """Submit as soon as the earlier result is set, before the thread takes another job."""
        if done is not None:
            seen.append(done.result())
        if len(seen) == 20:
            enough.set()
        else:
            shares.submit("a", threading.get_ident).add_done_callback(submit)

    submit()
    assert enough.wait(LIMIT)
    assert len(set(seen)) == 1
    shares.close()


def test_an_idle_thread_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes functions whose client has left, so that no response follows."""
    monkeypatch.setattr(threads, "QUIET_SECONDS", 0.01)
    may, given_back = threading.Event(), threading.Event()
    done: list[str] = []

    def function() -> None:
        assert may.wait(LIMIT)
        done.append("function")

    def give_back() -> None:
        done.append("give back")
        given_back.set()

    shares = Shares("test-share", 1, "functions", 10, 10, when_idle=give_back)
    try:
        shares.submit("a", function)
        may.set()
        assert given_back.wait(LIMIT)
        assert done == ["function", "give back"]
        assert shares.submit("a", lambda: "again").result(LIMIT) == "again"
    finally:
        shares.close()


def test_a_thread_rests_between_two_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the first one took, at most ``rest``; a single function is followed by none."""
    rested: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=rested.append)
    monkeypatch.setattr(threads, "time", clock)
    shares = Shares("test-share", 1, "functions", 9, 9, rest=0.01)
    assert shares.submit("a", lambda: 1).result(LIMIT) == 1
    work = Work(shares)
    futures = [work.submit("a", name) for name in "xyz"]
    assert rested == []
    wait_for(lambda: work.begun == ["x"])
    threading.Event().wait(0.02)
    work.end("x", "y", "z")
    assert [future.result(LIMIT) for future in futures] == ["x", "y", "z"]
    assert len(rested) == 2
    assert rested[0] == 0.01
    assert 0 <= rested[1] <= 0.01


def test_a_client_has_one_thread_for_small_requests() -> None:
    """Each thread that computes makes the event loop wait longer for the interpreter's lock."""
    shares = Threads()._small
    work = Work(shares)
    for number in range(4):
        work.submit("heavy", f"h{number}")
    wait_for(lambda: work.begun == ["h0"])
    for client in ("a", "b"):
        work.submit(client, client)
        wait_for(lambda client=client: work.begun[-1] == client)
    assert work.begun == ["h0", "a", "b"]
    work.end("h0", "h1", "h2", "h3", "a", "b")
    wait_for(lambda: work.begun[3:] == ["h1", "h2", "h3"])
    shares.close()
