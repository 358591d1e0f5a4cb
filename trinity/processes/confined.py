"""Child processes for untrusted input: they have no files, no network, and hard limits.

A `Confined` names a module whose function ``answer(request) -> reply`` runs in child processes.
Only JSON values, or bytes, cross, in frames whose length is checked before they are read. A child
imports what it needs, gives up its rights (`trinity.processes.confined_child`) and answers one
request after another. A child that breaks a limit ends, and the next call starts another.

Limits by system:

- Processor time needs an interval timer (every system but Windows).
- Memory is limited by Linux's address space (macOS does not enforce it, Windows has none).
- "No files" needs `resource` (not on Windows). On Linux, Landlock also forbids changes that need no
  open file, such as deleting or renaming.
- The parent limits the wall-clock time on every system. Without a timer this is the only limit of
  time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import weakref
from dataclasses import dataclass
from typing import Any

from trinity.errors import ConfinedError, ConfinedUnavailableError, InputError
from trinity.processes import json_parts
from trinity.processes.child_process import ChildProcess, search_path
from trinity.processes.confined_child import (
    BYTES_PER_SECOND,
    FAILED,
    LENGTH,
    LONGEST_REQUEST,
    MEMORY,
    REPLY_PER_BYTE,
    REQUEST,
    WORN,
)

DEEPEST = 100  # levels of lists and dicts in a request
_START_SECONDS = 6.0
# Bytes of a request that keeps a process busy, so that another one is started for other calls.
_LONG = 64 << 10
# Processor time is the actual limit. On a busy machine, the same work takes more clock time.
_CLOCK_FACTOR = 20.0 if hasattr(signal, "setitimer") else 2.0


@dataclass(frozen=True, slots=True)
class _Limits:
    module: str
    memory_bytes: int
    seconds: float
    reply_bytes: int
    raw: bool


class Confined:
    """Up to ``processes`` child processes that run ``module.answer``, started when needed.

    ``memory_bytes`` is the memory that a child may use beyond its size at start, ``seconds`` the
    processor time of one request, ``reply_bytes`` the length of a reply as JSON in ASCII. All
    three grow with the length of the request. ``raw``: requests and replies are bytes, not JSON
    values. A call waits if all processes are busy. A thread starts another one, if there may be
    one, while a call waits or a request is long; so a short call rarely waits for a start. A
    process made by fork() starts children of its own. Children end with their parent.
    """

    def __init__(
        self,
        module: str,
        *,
        memory_bytes: int,
        seconds: float,
        reply_bytes: int = 8 << 20,
        processes: int = 1,
        raw: bool = False,
    ) -> None:
        self._limits = _Limits(module, memory_bytes, seconds, reply_bytes, raw)
        self._processes = [_Process(self._limits) for _ in range(processes)]
        self._freed = threading.Condition()  # notified when a process is no longer busy
        _ALL.add(self)

    def call(self, request: Any, *, more_seconds: float = 0.0) -> Any:
        """The module's answer to a request, which may take ``more_seconds`` than others.

        Raises InputError for a value that JSON cannot hold (it says which), and ConfinedError
        when the child breaks a limit, dies or its module raises; ConfinedUnavailableError when the
        system does not start the child, or does not let it finish. If there are several processes,
        the caller whose request ended one starts the next, so that no other call waits for it.
        """
        payload = request if self._limits.raw else to_json(request)
        seconds = self._limits.seconds + more_seconds + len(payload) / BYTES_PER_SECOND
        held: list[_Process] = []  # also known here if Ctrl-C comes
        try:
            process = self._taken(held, len(payload) > _LONG)
            return process.call(payload, seconds)
        except ConfinedUnavailableError:
            raise
        except ConfinedError:
            if len(self._processes) > 1:
                with contextlib.suppress(ConfinedError), process.lock:
                    process.start()
            raise
        finally:
            self._free(*held)

    def _taken(self, held: list[_Process], is_long: bool) -> _Process:
        """Wait for a process that is not busy, count it as busy, and add it to ``held``."""
        may_start = True
        with self._freed:
            while True:
                free = [one for one in self._processes if not one.is_busy]
                started = [one for one in free if one.child is not None]
                # Others are busy or being started.
                is_waiting = not started and len(free) < len(self._processes)
                taken = None if is_waiting else (started or free)[0]
                spare = [one for one in free if one.child is None and one is not taken]
                if may_start and spare and (is_waiting or is_long):
                    may_start = False
                    self._start_beside(spare[0])
                if taken is not None:
                    held.append(taken)
                    taken.is_busy = True
                    return taken
                self._freed.wait()

    def _start_beside(self, process: _Process) -> None:
        """Start a process in a thread. The caller holds the lock."""

        def start() -> None:
            with contextlib.suppress(ConfinedError), process.lock:
                process.start()
            self._free(process)

        process.is_busy = True
        try:
            threading.Thread(target=start, name="trinity-confined", daemon=True).start()
        except (RuntimeError, MemoryError):  # there is no thread: those that run are enough
            process.is_busy = False

    def _free(self, *processes: _Process) -> None:
        with self._freed:
            for process in processes:
                process.is_busy = False
            self._freed.notify_all()

    def close(self) -> None:
        """End the children; a later call starts others."""
        for process in self._processes:
            with process.lock:
                process.drop()

    def _forget(self) -> None:
        """Called after fork(): children, locks and calls belong to the parent process."""
        for process in self._processes:
            process.forget()
        self._processes = [_Process(self._limits) for _ in self._processes]
        self._freed = threading.Condition()


class _Process:
    """One child at a time, for one call at a time."""

    def __init__(self, limits: _Limits) -> None:
        self.limits = limits
        self.is_busy = False  # in a call or being started
        self.lock = threading.Lock()  # held during a call
        self.child: ChildProcess | None = None
        self._end: weakref.finalize[Any, Any] | None = None

    def call(self, payload: bytes, seconds: float) -> Any:
        """The reply to an encoded request. Raises as `Confined.call`."""
        message = REQUEST.pack(len(payload), seconds) + payload
        longest = self.limits.reply_bytes + REPLY_PER_BYTE * len(payload)
        with self.lock:
            try:
                reply, worn = self._exchanged(self.start(), message, seconds, longest)
            except BaseException:  # the child might still reply, to the next request
                self.drop()
                raise
            if worn:
                self.drop()
        return reply

    def start(self) -> ChildProcess:
        """The child, started if none runs. Raises ConfinedUnavailableError."""
        if self.child is not None and self.child.process.poll() is not None:
            self.drop()  # it was killed while it waited
        if self.child is not None:
            return self.child
        try:
            child = self.child = ChildProcess()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise self._unavailable(f"it did not start: {error}") from error
        self._end = weakref.finalize(self, child.end)
        start = {
            "path": search_path(),
            "module": self.limits.module,
            "memory_bytes": self.limits.memory_bytes,
            "reply_bytes": self.limits.reply_bytes,
            "raw": self.limits.raw,
        }
        try:
            self._exchanged(child, json.dumps(start).encode() + b"\n", _START_SECONDS, 1 << 16)
        except ConfinedError as error:
            self.drop()
            raise self._unavailable(f"it did not start: {error.reason}") from error
        return child

    def drop(self) -> None:
        """End the child."""
        if self._end is not None:
            self._end()
        self.child = self._end = None

    def forget(self) -> None:
        """Leave the child to the process that started it."""
        if self._end is not None:
            self._end.detach()
        if self.child is not None:
            self.child.forget()

    def _exchanged(
        self, child: ChildProcess, message: bytes, seconds: float, longest: int
    ) -> tuple[Any, bool]:
        """A reply, and whether the child has grown so much that another should replace it."""
        try:
            kind, body = child.exchange(message, _CLOCK_FACTOR * seconds, longest)
        except OSError as error:
            raise self._unavailable(str(error)) from error
        if kind == MEMORY:
            megabytes = self.limits.memory_bytes / 1e6
            raise self._stopped(f"it used more than {megabytes:.0f} MB of memory")
        if kind == LENGTH:
            raise self._stopped(f"its answer is longer than {longest} characters")
        if kind == b"":
            reason = child.cause_of_death(seconds)
            raise self._unavailable(reason) if child.was_interrupted else self._stopped(reason)
        if self.limits.raw and kind != FAILED:
            return body, kind == WORN
        try:
            reply = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self._stopped("its answer is not valid") from error
        if kind == FAILED:
            raise self._stopped(f"it failed: {reply}")
        return reply, kind == WORN

    def _stopped(self, reason: str) -> ConfinedError:
        return ConfinedError(f"the process for {self.limits.module} was stopped: {reason}", reason)

    def _unavailable(self, reason: str) -> ConfinedUnavailableError:
        return ConfinedUnavailableError(
            f"the process for {self.limits.module} cannot run: {reason}", reason
        )


_ALL: weakref.WeakSet[Confined] = weakref.WeakSet()


def _after_fork() -> None:
    for confined in list(_ALL):
        confined._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def to_json(value: Any) -> bytes:
    """``value`` as JSON in ASCII. Raises: InputError that names what JSON cannot hold."""
    _check_json(value, "", 0)
    try:
        text = json_parts.dumps(value)
    except ValueError as error:  # an integer of too many digits
        raise InputError(f"a value cannot be written as JSON: {error}") from error
    if len(text) > LONGEST_REQUEST:
        raise InputError(
            f"the values have {len(text)} characters as JSON; at most {LONGEST_REQUEST} are allowed"
        )
    return text.encode()


def _check_json(value: object, where: str, depth: int) -> None:
    if value is None or isinstance(value, str | int | float):
        return
    if depth > DEEPEST:
        raise InputError(f"{where[:80]}... is nested more than {DEEPEST} deep")
    if isinstance(value, list | tuple):
        for i, part in enumerate(value):
            _check_json(part, f"{where}[{i}]", depth + 1)
    elif isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise InputError(
                    f"{where[:80] or 'the value'} has the key {str(key)[:40]!r} of type"
                    f" {type(key).__name__}; expected text, as JSON has it"
                )
            _check_json(part, f"{where}.{key[:40]}".lstrip("."), depth + 1)
    else:
        raise InputError(
            f"{where[:80] or 'the value'} is of type {type(value).__name__}; expected what JSON"
            " can hold: text, numbers, booleans, None, lists and dicts"
        )
