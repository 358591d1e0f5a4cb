"""A process of its own for what cannot be trusted: it has no files, no network, and hard limits.

A `Confined` names a module whose function ``answer(request) -> reply`` runs in a child process.
Only JSON values cross, in frames whose length is checked before they are read. The child imports
what it needs, gives up its rights (`trinity.confined_child`) and answers one request after
another; one that breaks a limit ends the child, and the next call starts another.

What holds where: processor time needs an interval timer (everywhere but Windows), the limit of
memory Linux's count of address space (macOS does not enforce it, Windows has none), "no files"
needs `resource` (not on Windows) and, against changes that open nothing, Linux's Landlock. The
limit of wall-clock time, in the parent, holds everywhere; without a timer it is the only one.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from typing import Any

from trinity.confined_child import (
    BYTES_PER_SECOND,
    FAILED,
    LENGTH,
    LONGEST_REQUEST,
    MEMORY,
    REPLY,
    REPLY_PER_BYTE,
    REQUEST,
    WORN,
)
from trinity.errors import ConfinedError, ConfinedUnavailableError, InputError

_DEEPEST = 100
_START_SECONDS = 6.0
# The processor's time is the limit that counts; a crowded machine takes longer by the clock.
_CLOCK_FACTOR = 20.0 if hasattr(signal, "setitimer") else 2.0
_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
_START = (
    "import sys, json; start = json.loads(sys.stdin.buffer.readline());"
    " sys.path[:] = start.pop('path');"
    " from trinity.confined_child import run; run(**start)"
)


class Confined:
    """A child process that runs ``module.answer``; started by the first call and kept.

    ``memory_bytes`` is what the child may use beyond its size when it is ready, ``seconds`` the
    processor time of one request, ``reply_bytes`` the length of a reply as JSON in ASCII. All
    three grow with the length of the request. Calls of several threads wait for each other; a
    process made by fork() starts a child of its own. The child ends with its parent.
    """

    def __init__(
        self, module: str, *, memory_bytes: int, seconds: float, reply_bytes: int = 8 << 20
    ) -> None:
        self.module = module
        self.memory_bytes = memory_bytes
        self.seconds = seconds
        self.reply_bytes = reply_bytes
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        _ALL.add(self)

    def call(self, request: Any, *, more_seconds: float = 0.0) -> Any:
        """The module's answer to a JSON value, which may take ``more_seconds`` than others.

        Raises InputError for a value that JSON cannot hold (it says which), and ConfinedError
        when the child breaks a limit, dies or its module raises; ConfinedUnavailableError when the
        system does not start the child, or does not let it finish.
        """
        payload = to_json(request)
        seconds = self.seconds + more_seconds + len(payload) / BYTES_PER_SECOND
        with self._lock:
            try:
                child = self._started()
                reply, worn = self._asked(child, payload, seconds)
            except BaseException as error:  # a child not heard out would answer late
                self._drop()
                if isinstance(error, RuntimeError):  # no thread can be started to watch it
                    raise self._unavailable(f"it cannot be watched: {error}") from error
                raise
            if worn:
                self._drop()
        return reply

    def start(self) -> None:
        """Start the child if none runs. Raises ConfinedUnavailableError."""
        with self._lock:
            self._started()

    def close(self) -> None:
        """End the child; a later call starts another."""
        with self._lock:
            self._drop()

    def _started(self) -> _Child:
        if self._child is not None and self._child.process.poll() is not None:
            self._drop()  # killed by someone while it waited
        if self._child is None:
            try:
                child = _Child()
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise self._unavailable(f"it did not start: {error}") from error
            self._child = child
            self._end = weakref.finalize(self, child.end)
            start: dict[str, Any] = {"path": _search_path(), "module": self.module}
            start["memory_bytes"] = self.memory_bytes
            start["reply_bytes"] = self.reply_bytes
            message = json.dumps(start).encode() + b"\n"
            try:
                self._exchanged(child, message, _START_SECONDS, 1 << 16)
            except (ConfinedError, RuntimeError) as error:
                self._drop()
                if isinstance(error, RuntimeError):  # no thread can be started to watch it
                    raise self._unavailable(f"it cannot be watched: {error}") from error
                raise self._unavailable(f"it did not start: {error.reason}") from error
        return self._child

    def _asked(self, child: _Child, payload: bytes, seconds: float) -> tuple[Any, bool]:
        longest = self.reply_bytes + REPLY_PER_BYTE * len(payload)
        message = REQUEST.pack(len(payload), seconds) + payload
        return self._exchanged(child, message, seconds, longest)

    def _exchanged(
        self, child: _Child, message: bytes, seconds: float, longest: int
    ) -> tuple[Any, bool]:
        """A reply, and whether the child has grown so much that another should take over."""
        kind, body = child.exchange(message, _CLOCK_FACTOR * seconds, longest)
        if kind == MEMORY:
            raise self._stopped(f"it used more than {self.memory_bytes / 1e6:.0f} MB of memory")
        if kind == LENGTH:
            raise self._stopped(f"its answer is longer than {longest} characters")
        if kind == b"":
            reason = child.cause_of_death(seconds)
            raise self._unavailable(reason) if child.was_interrupted else self._stopped(reason)
        try:
            reply = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._stopped("its answer is not valid") from error
        if kind == FAILED:
            raise self._stopped(f"it failed: {reply}")
        return reply, kind == WORN

    def _stopped(self, reason: str) -> ConfinedError:
        return ConfinedError(f"the process for {self.module} was stopped: {reason}", reason)

    def _unavailable(self, reason: str) -> ConfinedUnavailableError:
        return ConfinedUnavailableError(
            f"the process for {self.module} cannot run: {reason}", reason
        )

    def _drop(self) -> None:
        if self._end is not None:
            self._end()
        self._child = self._end = None

    def _forget(self) -> None:
        """After fork(): the child and the lock are the other process's."""
        self._lock = threading.Lock()
        if self._end is not None:
            self._end.detach()
        if self._child is not None:
            self._child.forget()
        self._child = self._end = None


class _Child:
    """The process and the two pipes to it."""

    def __init__(self) -> None:
        options = ["-I", "-S", "-X", "utf8"]  # nothing from the environment or from .pth files
        if sys.dont_write_bytecode:
            options.append("-B")
        if sys.pycache_prefix is not None:
            options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
        self.process = subprocess.Popen(
            [_interpreter(), *options, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=os.path.abspath(os.sep),
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            start_new_session=True,  # Ctrl-C is the parent's, and a kill reaches the whole group
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        self._late = False

    def exchange(self, message: bytes, seconds: float, longest: int) -> tuple[bytes, bytes]:
        """Kind and JSON of the reply to ``message``; both are empty when the child died."""
        assert self.process.stdin is not None
        with self._deadline(seconds):
            view = memoryview(message)
            with contextlib.suppress(OSError):  # a child that is gone is noticed below
                while view:
                    view = view[self.process.stdin.write(view) or 0 :]
            head = self._read(REPLY.size)
            if len(head) < REPLY.size:
                return b"", b""
            kind, length = REPLY.unpack(head)
            if length > longest:
                return LENGTH, b""
            body = self._read(length)
            return (kind, body) if len(body) == length else (b"", b"")

    def cause_of_death(self, seconds: float) -> str:
        """Why there was no reply, as a clause."""
        if not self._late:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
        status = self.process.returncode
        if self._late or (hasattr(signal, "SIGPROF") and status == -signal.SIGPROF):
            return f"it ran for more than {seconds:.2g} seconds"
        if status is not None and status < 0:
            try:
                return f"it was ended by {signal.Signals(-status).name}"
            except ValueError:
                return f"it was ended by signal {-status}"
        return f"it ended with status {status}"

    @property
    def was_interrupted(self) -> bool:
        """Whether the child died of the system's doing; known after ``cause_of_death``.

        Something outside killed it, or it got too little processor time.
        """
        if self._late:
            return hasattr(signal, "setitimer")
        return sys.platform != "win32" and self.process.returncode == -signal.SIGKILL

    def end(self) -> None:
        """Kill the child and close the pipes; safe to repeat."""
        self._kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self._close()

    def forget(self) -> None:
        """Leave the child to the process that started it."""
        self._close()
        self.process.returncode = 0  # nothing to wait for here

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read(self, length: int) -> bytes:
        assert self.process.stdout is not None
        data = bytearray()
        while len(data) < length:
            piece = self.process.stdout.read(min(length - len(data), 1 << 20))
            if not piece:
                break
            data += piece
        return bytes(data)

    @contextlib.contextmanager
    def _deadline(self, seconds: float) -> Any:
        """Kill the child after ``seconds``, which ends a read or write that waits for it."""

        def expire() -> None:
            self._late = True
            self._kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # no thread is left for a fork() that follows

    def _kill(self) -> None:
        if self.process.returncode is not None:
            return
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                self.process.kill()
            else:
                os.killpg(self.process.pid, signal.SIGKILL)


def to_json(value: Any) -> bytes:
    """``value`` as JSON in ASCII; raises InputError for what JSON cannot hold, saying where."""
    _check(value, "", 0)
    try:
        text = json.dumps(value)
    except ValueError as error:  # an integer of too many digits
        raise InputError(f"a value cannot be written as JSON: {error}") from error
    if len(text) > LONGEST_REQUEST:
        raise InputError(
            f"the values have {len(text)} characters as JSON; at most {LONGEST_REQUEST} are taken"
        )
    return text.encode()


def _check(value: object, where: str, depth: int) -> None:
    if value is None or isinstance(value, str | int | float):
        return
    if depth > _DEEPEST:
        raise InputError(f"{where[:80]}... is nested more than {_DEEPEST} deep")
    if isinstance(value, list | tuple):
        for i, part in enumerate(value):
            _check(part, f"{where}[{i}]", depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise InputError(
                    f"{where[:80] or 'the value'} has the key {str(key)[:40]!r} of type"
                    f" {type(key).__name__}; expected text, as JSON has it"
                )
            _check(part, f"{where}.{key[:40]}".lstrip("."), depth + 1)
    else:
        raise InputError(
            f"{where[:80] or 'the value'} is of type {type(value).__name__}; expected what JSON"
            " can hold: text, numbers, booleans, None, lists and dicts"
        )


def _interpreter() -> str:
    if getattr(sys, "frozen", False):
        raise ValueError("a frozen program has no Python interpreter to start")
    spawn = sys.modules.get("multiprocessing.spawn")  # where a host names its interpreter
    executable = sys.executable if spawn is None else spawn.get_executable()
    if not executable:
        raise ValueError("sys.executable names no Python interpreter")
    return os.fsdecode(executable)


def _search_path() -> list[str]:
    """Where the child looks for modules: as here, and where both packages are.

    Those of an editable installation need not be in sys.path.
    """
    path = []
    for folder in sys.path:
        with contextlib.suppress(OSError):  # a current folder that was removed
            path.append(os.path.abspath(folder))
    packages = [os.path.dirname(os.path.abspath(__file__))]
    kernels = importlib.util.find_spec("trinity_kernels")
    if kernels is not None and kernels.origin is not None:
        packages.append(os.path.dirname(os.path.abspath(kernels.origin)))
    return list(dict.fromkeys([*path, *map(os.path.dirname, packages)]))


_ALL: weakref.WeakSet[Confined] = weakref.WeakSet()


def _after_fork() -> None:
    for confined in list(_ALL):
        confined._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
