"""The process of the command line: how signals end it, and its first three descriptors.

It imports next to nothing, so that Ctrl-C is quiet from the first moment on.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` itself takes a while
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
STACK, LEAST_STACK = 8 << 20, 1 << 20
# Signals that end a program which does not handle them, and that can be handled in an orderly way.
_ENDS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


def begin() -> None:
    """Let signals end the process as ``end`` does, and open closed standard streams.

    Otherwise the next file that is opened would become standard output. Signals that the process
    was started to ignore stay ignored. The stack must be large enough for nested input, otherwise
    the process exits with an error.
    """
    for name in _ENDS:
        number = getattr(signal, name, None)  # Windows has few of them
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    ensure_stack()


def ensure_stack() -> None:
    """Set the stack size to 8 MB, or to what the system allows; exit with 1 if that is too little.

    Python refuses input that is nested too deeply, such as JSON, before a stack of usual size
    overflows. A smaller stack (``ulimit -s``) would end in a segmentation fault.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft == resource.RLIM_INFINITY or soft >= STACK:
        return
    most = STACK if hard == resource.RLIM_INFINITY else min(STACK, hard)
    if most < LEAST_STACK:
        told = f"error: the stack is limited to {most >> 10} KB, and trinity needs "
        told += f"{LEAST_STACK >> 10} KB: raise the limit (ulimit -s {STACK >> 10})\n"
        os.write(2, told.encode())
        os._exit(1)
    resource.setrlimit(resource.RLIMIT_STACK, (most, hard))
    import threading

    threading.stack_size(STACK)  # the stack size of threads was fixed when the process started


def discard_unfinished() -> None:
    """Remove files that are being written."""
    writers = sys.modules.get("trinity_kernels.whole_file")
    if writers is not None and hasattr(
        writers, "discard_unfinished"
    ):  # else no file is being written
        writers.discard_unfinished()


def end(number: int, _frame: FrameType | None = None) -> None:
    """Exit from a signal's handler: status 130 for Ctrl-C, otherwise death by the signal.

    Unfinished files are removed first. The stack is not unwound, because code that catches every
    exception, such as the compiler's callbacks, could keep the process alive, and the threads of a
    team wait.
    """
    discard_unfinished()
    if os.name == "posix" and os.isatty(2):
        try:  # noqa: SIM105  # no import in a signal's handler
            os.write(2, b"\x1b[?25h\n")  # show the cursor, which a progress display hides
        except OSError:
            pass
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(INTERRUPTED if number == signal.SIGINT else 128 + number)


def leave_threads(status: int) -> None:
    """Exit with ``status`` at once if a thread still computes, because Python would wait for it."""
    import threading

    end = time.monotonic() + 1.0
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.daemon:
            continue
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            discard_unfinished()
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(status)
