"""Child processes read and compile grammars first: some take llguidance minutes or all memory.

`trinity.grammar.compiling` runs in the processes; this module is the caller's side.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from trinity.errors import ConfinedError, ConfinedUnavailableError, InputError
from trinity.grammar.library import llguidance
from trinity.grammar.limits import MEMORY_BYTES, SECONDS
from trinity.processes.confined import Confined

# Processes that compile at the same time; two at least, so that one heavy grammar blocks no other.
PROCESSES: Final = max(2, min(4, (os.cpu_count() or 1) // 4))
KNOWN: Final = 1024  # outcomes that are remembered
KNOWN_BYTES: Final = 32 << 20  # of their texts, all together

_processes = Confined(
    "trinity.grammar.compiling", memory_bytes=MEMORY_BYTES, seconds=SECONDS, processes=PROCESSES
)

# Whether a grammar that is not known yet raises NotCompiledError instead of being compiled. A
# server sets it in threads that must stay free for other requests.
only_known: ContextVar[bool] = ContextVar("only_known", default=False)


class NotCompiledError(Exception):
    """A grammar is not known yet, and `only_known` is set."""


class Outcome(NamedTuple):
    """The result for a grammar: why it is refused, or the text that llguidance compiles."""

    refusal: str
    text: str = ""


def made(language: str, source: str, **options: Any) -> str:
    """Compile a grammar of one of `compiling.LANGUAGES` once, and return its text for llguidance.

    ``options`` are those of the language. An outcome is remembered, refusals too. Raises:
    InputError for a grammar that is wrong, costs too much or lets nothing through;
    ConfinedUnavailableError if the system gives no process or thread; NotCompiledError.
    """
    llguidance()
    key = _key(language, source, options)
    outcome = _outcomes.get(key)
    if outcome is None:
        if only_known.get():
            raise NotCompiledError
        outcome = _tried([language, source, options])
        _outcomes.put(key, outcome)
        if not outcome.refusal and language != "compiled":
            kind = "json_schema" if language == "json_schema" else "lark"
            _outcomes.put(_key("compiled", outcome.text, {"kind": kind}), Outcome(""))
    if outcome.refusal:
        raise InputError(outcome.refusal)
    return outcome.text


def checked(kind: str, text: str) -> None:
    """Raise as ``made`` for a text for llguidance. ``kind`` is that of `Grammar`."""
    made("compiled", text, kind=kind)


def _tried(request: Any) -> Outcome:
    try:
        return Outcome(*_processes.call(request))
    except ConfinedUnavailableError:
        raise
    except ConfinedError as stopped:
        if stopped.reason.startswith("it failed"):  # an exception within the library
            return Outcome(
                "the grammar cannot be compiled: check its syntax and the types of its values"
            )
        return Outcome(f"the grammar is too expensive to compile: {stopped.reason}")


def _key(language: str, source: str, options: Any) -> bytes:
    said = json.dumps([language, options], sort_keys=True)
    return blake2b(f"{said}\0{source}".encode("utf-8", "surrogatepass"), digest_size=32).digest()


class Outcomes:
    """The latest outcomes by the hash of the request, with at most ``most_bytes`` of texts."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._found: OrderedDict[bytes, Outcome] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Outcome | None:
        """Return the outcome and make it the newest."""
        with self._lock:
            outcome = self._found.get(key)
            if outcome is not None:
                self._found.move_to_end(key)
            return outcome

    def put(self, key: bytes, outcome: Outcome) -> None:
        """Store an outcome and remove the oldest beyond the limits."""
        with self._lock:
            self._bytes += _size(outcome) - _size(self._found.pop(key, Outcome("")))
            self._found[key] = outcome
            while self._found and (len(self._found) > self._most or self._bytes > self._most_bytes):
                self._bytes -= _size(self._found.popitem(last=False)[1])

    def forget_lock(self) -> None:
        """Replace the lock after fork(), because another thread of the parent may have held it."""
        self._lock = threading.Lock()


def _size(outcome: Outcome) -> int:
    return 4 * (len(outcome.refusal) + len(outcome.text))


_outcomes = Outcomes(KNOWN, KNOWN_BYTES)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_outcomes.forget_lock)
