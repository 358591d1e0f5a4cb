from __future__ import annotations

import threading

import pytest

from trinity.runtime.aside import Aside


def test_calls_are_made_by_the_thread_in_order() -> None:
    aside = Aside()
    made: list[int] = []
    names: set[str] = set()

    def call(number: int) -> int:
        made.append(number)
        names.add(threading.current_thread().name)
        return number

    last = threading.Event()
    for number in range(5):
        aside.begin(lambda number=number: call(number))  # type: ignore[misc]
    aside.begin(last.set)
    assert last.wait(10)
    assert (made, names) == ([0, 1, 2, 3, 4], {"trinity-aside"})
    aside.end()


def test_result_is_made_once_by_whoever_comes_first() -> None:
    aside = Aside()
    hold, count = threading.Event(), [0]

    def call() -> int:
        count[0] += 1
        return count[0]

    aside.begin(hold.wait)
    promise = aside.begin(call)
    assert promise.result() == 1  # the thread is busy
    hold.set()
    aside.end()
    assert (promise.result(), count) == (1, [1])


def test_an_error_is_raised_for_the_result() -> None:
    aside = Aside()
    promise = aside.begin(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        promise.result()
    assert aside.begin(lambda: 2).result() == 2  # the thread goes on
    aside.end()


def test_end_and_begin_again() -> None:
    aside = Aside()
    aside.end()
    for _ in range(2):
        assert aside.begin(lambda: 3).result() == 3
        thread = aside._thread
        assert thread is not None
        aside.end()
        assert not thread.is_alive()


def test_without_a_thread_the_asker_makes_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    aside = Aside()
    assert aside.begin(lambda: threading.current_thread()).result() is threading.current_thread()
    aside.end()
