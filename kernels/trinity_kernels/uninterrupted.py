"""Work that Ctrl-C must not interrupt: compiling, imports, the start of threads.

A signal handler may raise an exception between any two bytecodes of the main thread. In the
compiler it would leave locks held and tables half written, and in a callback from LLVM it would be
printed and lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_shielded = threading.local()


def uninterrupted(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run ``function(*args, **kwargs)`` in a thread of its own while the caller waits.

    Signal handlers run meanwhile. An exception that one raises, or that another thread sets for
    this thread, is raised after the work. Within such work, or if no thread can be started, this
    is a plain call.
    """
    if getattr(_shielded, "yes", False):
        return function(*args, **kwargs)
    results: list[T] = []
    errors: list[BaseException] = []
    finished: list[bool] = []
    taken, done = threading.Lock(), threading.Lock()
    done.acquire()

    def work() -> None:
        if not taken.acquire(blocking=False):
            return  # an interrupted start succeeded all the same
        _shielded.yes = True
        try:
            results.append(function(*args, **kwargs))
        except BaseException as error:
            errors.append(error)
        finally:
            finished.append(True)
            done.release()

    threads: list[threading.Thread] = []
    interruption: BaseException | None = None
    # An exception may come between any two bytecodes: starting and waiting share one `try`, and
    # both may be done again.
    while True:
        try:
            while not finished:
                if not taken.locked():
                    # Not a daemon: an interpreter that ends waits for it.
                    thread = threading.Thread(target=work, name="trinity-uninterrupted")
                    threads.append(thread)
                    thread.start()
                done.acquire(timeout=1.0)
            while threads:
                if threads[-1].ident is not None:
                    threads[-1].join()
                threads.pop()
            break
        except BaseException as error:
            if isinstance(error, RuntimeError | MemoryError) and not taken.locked():
                return function(*args, **kwargs)  # the system has no thread to give
            interruption = interruption or error
    try:
        if interruption is not None:
            raise interruption
        if errors:
            raise errors[0]
        return results[0]
    finally:
        # Else the exception's traceback would hold this frame, and this frame the exception.
        errors.clear()
        interruption = None
