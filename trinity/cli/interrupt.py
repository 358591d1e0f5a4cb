"""Handle Ctrl-C: stop a response, or ask, instead of ending the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets; the second one has its former effect.

    The event stays unset outside the main thread, which alone receives signals, and if Ctrl-C is
    ignored.
    """
    event = threading.Event()
    previous = signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if not event.is_set():
            event.set()
        elif callable(previous):
            previous(number, frame)
        else:
            raise KeyboardInterrupt

    with _handled_by(on_interrupt):
        yield event


@contextmanager
def raising() -> Iterator[None]:
    """Within this context Ctrl-C raises KeyboardInterrupt."""
    with _handled_by(signal.default_int_handler):
        yield


@contextmanager
def _handled_by(handler: object) -> Iterator[None]:
    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.getsignal(signal.SIGINT)
    if not is_main or previous is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
