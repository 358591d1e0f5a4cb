from __future__ import annotations

import threading
import time

import pytest

from trinity.errors import InputError
from trinity.runtime import turn as module
from trinity.runtime.turn import Turn


def test_first_come_first_served() -> None:
    turn = Turn()
    turn.acquire()
    order: list[int] = []

    def wait(number: int) -> None:
        turn.acquire()
        order.append(number)
        turn.release()

    threads = []
    for number in range(4):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        while len(turn._waiters) <= number:
            time.sleep(0.001)
    turn.release()
    for thread in threads:
        thread.join(5)
    assert order == [0, 1, 2, 3]
    assert not turn._waiters


def test_any_thread_may_release() -> None:
    turn = Turn()
    turn.acquire()
    releaser = threading.Thread(target=turn.release)
    releaser.start()
    assert turn.acquire()
    releaser.join()


def test_cancelled_while_waiting() -> None:
    turn = Turn()
    turn.acquire()
    cancel = threading.Event()
    cancel.set()
    assert not turn.acquire(cancel)
    turn.release()
    assert turn.acquire(cancel)


def test_waiting_for_oneself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.05)
    turn = Turn()
    turn.acquire()
    turn.pause()
    with pytest.raises(InputError, match="still open in this thread"):
        turn.acquire()
    turn.release()
    assert turn.acquire()


def test_waiting_for_another_threads_stream_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.0)
    turn = Turn()

    def hold() -> None:
        turn.acquire()
        turn.pause()

    holder = threading.Thread(target=hold)
    holder.start()
    holder.join()
    threading.Timer(0.3, turn.release).start()
    assert turn.acquire()
