"""Work that an asynchronous exception does not interrupt."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest

from trinity_kernels.uninterrupted import uninterrupted


def test_results_errors_and_nesting() -> None:
    assert uninterrupted(lambda a, b: a - b, 5, b=3) == 2
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: 1 // 0)
    inner: list[int] = []
    uninterrupted(lambda: uninterrupted(lambda: inner.append(threading.get_ident())))
    assert inner != [threading.get_ident()]


def test_an_exception_from_outside_comes_after_the_work() -> None:
    done: list[str] = []
    here = threading.get_ident()

    def work() -> None:
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raise_in(ctypes.c_ulong(here), ctypes.py_object(KeyboardInterrupt))
        time.sleep(0.2)
        done.append("all")

    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert done == ["all"]


def test_without_threads_it_is_a_plain_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert uninterrupted(threading.get_ident) == threading.get_ident()
