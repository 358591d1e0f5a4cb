"""A thread for what can be computed while a step runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """What a call will have returned or raised."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call, unless somebody has begun to."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def result(self) -> T:
        """What the call returned, made here where nobody has begun; or raise what it raised."""
        self.run()
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class MaskThread:
    """The thread, which starts with the first call and waits for the next without end.

    It belongs to the thread that uses it, which ends it. A process made by fork() uses another one.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Promise[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, call: Callable[[], T]) -> Promise[T]:
        """Have ``call`` made; where the system gives no thread, by who asks for its result."""
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
        """End the thread and wait until it has ended; a later call starts another."""
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
            del promise  # else the last answer would live until the next one
