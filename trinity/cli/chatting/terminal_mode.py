"""The mode of the terminal that is typed into: changed for a while, and always restored."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

PLAIN_PASTE = b"\x1b[?2004l"  # switches the terminal's marks around pasted text off


@contextmanager
def unechoed() -> Iterator[None]:
    """Do not show what is typed within this context; the next prompt receives it."""
    if os.name == "nt" or not sys.stdin.isatty():
        yield
        return
    import termios

    mode = termios.tcgetattr(sys.stdin)
    silent = [*mode[:3], mode[3] & ~termios.ECHO, *mode[4:]]
    with restored():
        termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
        try:
            yield
        finally:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(sys.stdin, termios.TCSANOW, mode)


@contextmanager
def restored() -> Iterator[None]:
    """Restore the terminal if SIGTERM ends the process within this context."""
    previous = signal.getsignal(signal.SIGTERM)
    if os.name == "nt" or not callable(previous) or not sys.stdin.isatty():
        yield
        return
    import termios

    mode = termios.tcgetattr(sys.stdin)

    def on_end(number: int, frame: FrameType | None) -> None:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, mode)
        os.write(sys.stdout.fileno(), PLAIN_PASTE)
        previous(number, frame)

    signal.signal(signal.SIGTERM, on_end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
