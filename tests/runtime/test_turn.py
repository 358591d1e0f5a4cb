from __future__ import annotations

import os
import threading
import time

import pytest

from trinity.errors import InputError
from trinity.runtime import turn as module
from trinity.runtime.turn import Ticket, Turn


def test_first_come_first_served() -> None:
    turn = Turn()
    held = turn.acquire()
    order: list[int] = []

    def wait(number: int) -> None:
        ticket = turn.acquire()
        order.append(number)
        del ticket
        turn.call_next()

    threads = []
    for number in range(4):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        while len(turn._queue) <= number + 1:
            time.sleep(0.001)
    del held
    turn.call_next()
    for thread in threads:
        thread.join(5)
    assert order == [0, 1, 2, 3]
    assert not turn._queue


def test_any_thread_may_give_it_up() -> None:
    turn = Turn()
    held = [turn.acquire()]
    releaser = threading.Thread(target=held.clear)
    releaser.start()
    assert turn.acquire() is not None
    releaser.join()


def test_cancelled_while_waiting() -> None:
    turn = Turn()
    held = hold_elsewhere(turn)
    cancel = threading.Event()
    cancel.set()
    assert turn.acquire(cancel) is None
    held.clear()
    assert turn.acquire(cancel) is not None


def hold_elsewhere(turn: Turn) -> list[Ticket]:
    """A ticket that another thread took."""
    held: list[Ticket] = []

    def hold() -> None:
        ticket = turn.acquire()
        assert ticket is not None
        ticket.pause()
        held.append(ticket)

    holder = threading.Thread(target=hold)
    holder.start()
    holder.join()
    return held


def test_waiting_for_oneself_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.05)
    turn = Turn()
    ticket = turn.acquire()
    assert ticket is not None
    with pytest.raises(InputError, match="within one of its own calls"):
        turn.acquire()
    ticket.pause()
    with pytest.raises(InputError, match="still open in this thread"):
        turn.acquire()
    del ticket
    assert turn.acquire() is not None


def test_waiting_for_another_threads_stream_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.0)
    turn = Turn()
    held = hold_elsewhere(turn)
    threading.Timer(0.3, held.clear).start()
    assert turn.acquire() is not None


def test_an_exception_that_is_still_handled_holds_no_turn() -> None:
    """Its traceback keeps the frames alive that it went through."""
    turn = Turn()

    def call() -> None:
        ticket = turn.acquire()
        try:
            raise KeyboardInterrupt
        finally:
            del ticket

    try:
        call()
    except KeyboardInterrupt:
        assert turn.acquire(AlreadySet()) is not None


class AlreadySet:
    def is_set(self) -> bool:
        return True


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_leaves_no_turn_held() -> None:
    turn = Turn()
    held = hold_elsewhere(turn)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert turn.held_before_fork()
            mine = turn.acquire(AlreadySet())
            assert mine is not None
            with pytest.raises(InputError, match="before the process forked"):
                held[0].resume()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert not turn.held_before_fork()
    held[0].resume()
