"""A thread that computes grammar masks while a step runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """The future result of a call."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call, unless another thread has begun it."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def result(self) -> T:
        """Return the call's result or raise its exception; make the call here if no thread has."""
        self.run()
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class MaskThread:
    """The thread. It starts with the first call and waits for the next ones.

    The thread that uses it must end it. After a fork, the child process starts its own.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Promise[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, call: Callable[[], T]) -> Promise[T]:
        """Let the thread make ``call``. If no thread can be started, ``result`` makes it."""
        promise = Promise(call)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="trinity-mask", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError):
                return promise
            self._thread = thread
        self._calls.put(promise)
        return promise

    def end(self) -> None:
        """End the thread and wait for it; a later call starts a new one."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(None)
            thread.join()

    def _run(self) -> None:
        while True:
            promise = self._calls.get()
            if promise is None:
                return
            promise.run()
            del promise  # otherwise the last response would stay alive until the next call
