"""Signals: Ctrl-C that stops an answer rather than the program, and ends that clean up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def cleaning_up() -> Iterator[None]:
    """SIGTERM and SIGHUP end the program as Ctrl-C does, so that no temporary file stays.

    Outside the main thread, and where somebody handles or ignores them, nothing changes.
    """

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    changed = []
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                changed.append(number)
                signal.signal(number, end)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second raises KeyboardInterrupt as usual.

    Outside the main thread, which alone receives signals, the event stays unset.
    """
    event = threading.Event()

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, previous)
