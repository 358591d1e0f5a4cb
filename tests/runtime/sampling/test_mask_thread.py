from __future__ import annotations

import threading

import pytest

from trinity.runtime.sampling.mask_thread import MaskThread


def test_calls_are_made_by_the_thread_in_order() -> None:
    thread = MaskThread()
    made: list[int] = []
    names: set[str] = set()

    def call(number: int) -> int:
        made.append(number)
        names.add(threading.current_thread().name)
        return number

    last = threading.Event()
    for number in range(5):
        thread.begin(lambda number=number: call(number))  # type: ignore[misc]
    thread.begin(last.set)
    assert last.wait(60)
    assert (made, names) == ([0, 1, 2, 3, 4], {"trinity-mask"})
    thread.end()


def test_result_is_made_once_by_whoever_comes_first() -> None:
    thread = MaskThread()
    hold, count = threading.Event(), [0]

    def call() -> int:
        count[0] += 1
        return count[0]

    thread.begin(hold.wait)
    promise = thread.begin(call)
    assert promise.result() == 1  # the thread is busy
    hold.set()
    thread.end()
    assert (promise.result(), count) == (1, [1])


def test_an_error_is_raised_for_the_result() -> None:
    thread = MaskThread()
    promise = thread.begin(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        promise.result()
    assert thread.begin(lambda: 2).result() == 2  # the thread goes on
    thread.end()


def test_end_and_begin_again() -> None:
    thread = MaskThread()
    thread.end()
    for _ in range(2):
        assert thread.begin(lambda: 3).result() == 3
        started = thread._thread
        assert started is not None
        thread.end()
        assert not started.is_alive()


def test_without_a_thread_the_asker_makes_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    thread = MaskThread()
    assert thread.begin(lambda: threading.current_thread()).result() is threading.current_thread()
    thread.end()
