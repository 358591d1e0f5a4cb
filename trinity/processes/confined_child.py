"""The child's side of `trinity.processes.confined`: gives up its rights, then answers requests.

Rights are given up after everything is imported. From then on nothing new can be opened, so what
runs here must not import. Sources: setrlimit(2), setitimer(2), landlock(7), capabilities(7).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Limits grow by so much per byte of the request, to read it and to reply at the same length.
MEMORY_PER_BYTE = 12
MEMORY_PER_RAW_BYTE = 2
BYTES_PER_SECOND = 20_000_000
REPLY_PER_BYTE = 4

LONGEST_REQUEST = 1 << 28  # characters of JSON
REQUEST = struct.Struct("<Qd")  # length of what follows, seconds for the answer
REPLY = struct.Struct("<cQ")  # kind and length of what follows
READY, WORN, MEMORY, LENGTH, FAILED = b"R", b"W", b"M", b"L", b"F"

_FAILURE_CHARACTERS = 500
_SIZE_WITHOUT_PROC = 1 << 29  # assumed where the system does not say how large the process is
_WORN_SHARE = 4  # a child that has kept this part of its memory is replaced


def run(module: str, memory_bytes: int, reply_bytes: int, raw: bool) -> None:
    """Import ``module``, give up all rights, and answer until the parent closes its end."""
    _reset_signals()
    requests, replies = os.dup(0), os.dup(1)
    with open(os.devnull, "r+b", 0) as null:  # nothing that a library prints is taken for a reply
        os.dup2(null.fileno(), 0)
        os.dup2(null.fileno(), 1)
    try:
        answer: Callable[[Any], Any] = importlib.import_module(module).answer
        size = _give_up_rights()
    except Exception as error:
        _send(replies, FAILED, _failure(error))
        return
    ready_size = size()
    memory = ready_size + memory_bytes
    ceiling = _limit_memory_for_good(memory + MEMORY_PER_BYTE * LONGEST_REQUEST)
    _send(replies, READY, b"null")
    while head := _read(requests, REQUEST.size):
        length, seconds = REQUEST.unpack(head)
        per_byte = MEMORY_PER_RAW_BYTE if raw else MEMORY_PER_BYTE
        _limit_memory(memory + per_byte * length, ceiling)
        _limit_time(seconds)
        longest = reply_bytes + REPLY_PER_BYTE * length
        kind, body = _reply(answer if raw else _of_json(answer), requests, length, longest)
        if kind == READY and size() > ready_size + memory_bytes // _WORN_SHARE:
            kind = WORN
        _send(replies, kind, body)
        del body
        _limit_time(0)


def _reset_signals() -> None:
    """Reset signals: the parent handles Ctrl-C; what it ignores must still end the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _of_json(answer: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    return lambda request: json.dumps(answer(json.loads(request))).encode()


def _reply(
    answer: Callable[[bytes], bytes], requests: int, length: int, longest: int
) -> tuple[bytes, bytes]:
    """The kind and the content of the reply of ``answer`` to the next request."""
    try:
        body = answer(_read(requests, length))
    except MemoryError:
        return MEMORY, b""
    except BaseException as error:  # a Rust library's panic is not an Exception
        return FAILED, _failure(error)
    return (LENGTH, b"") if len(body) > longest else (READY, body)


def _failure(error: BaseException) -> bytes:
    text = f"{type(error).__name__}: {error}"
    return json.dumps(text[:_FAILURE_CHARACTERS]).encode()


def _read(file: int, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = os.read(file, min(length - len(data), 1 << 20))
        if not piece:
            sys.exit()  # the parent is gone
        data += piece
    return bytes(data)


def _send(file: int, kind: bytes, body: bytes) -> None:
    try:
        for data in (REPLY.pack(kind, len(body)), body):
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
    except OSError:  # the parent is gone
        sys.exit()


def _limit_time(seconds: float) -> None:
    """End this process by SIGPROF after ``seconds`` of CPU time; 0 disables that."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory_for_good(size: int) -> int:
    """Limit the address space to ``size`` bytes or a stricter limit; return the limit."""
    if resource is None:
        return size
    ceiling = min(x % (1 << 64) for x in (size, *resource.getrlimit(resource.RLIMIT_AS)))
    _limit_memory(ceiling, ceiling)
    return ceiling


def _limit_memory(size: int, ceiling: int) -> None:
    """Limit the address space to ``size`` bytes. macOS may refuse, and does not enforce it."""
    if resource is not None:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_AS, (min(size, ceiling), ceiling))


def _give_up_rights() -> Callable[[], int]:
    """Forbid opening and changing files; return the function that measures the address space."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        size = lambda: _SIZE_WITHOUT_PROC  # noqa: E731
    else:
        page = os.sysconf("SC_PAGE_SIZE")
        size = lambda: int(os.pread(file, 64, 0).split()[0]) * page  # noqa: E731
    if sys.platform == "linux":
        _lock_out()
    if resource is not None:
        for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
            resource.setrlimit(limit, (0, 0))
    return size


def _lock_out() -> None:
    """Linux: no new privileges, no newly opened files, no capabilities.

    Kernels with an older Landlock, or none, restrict what they can.
    """
    import ctypes

    libc = ctypes.CDLL(None)
    no_new_privileges, create, restrict = 38, 444, 446
    libc.prctl(no_new_privileges, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    version = libc.syscall(create, None, ctypes.c_size_t(0), 1)
    if version >= 1:
        # struct landlock_ruleset_attr: all rights on files (bits of versions 1, 2, 3, 5), on the
        # network (version 4), and on signals and abstract sockets (version 6).
        files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
        rules = (ctypes.c_uint64 * 3)(files, 3, 3)
        length = 24 if version >= 6 else 16 if version >= 4 else 8
        ruleset = libc.syscall(create, rules, ctypes.c_size_t(length), 0)
        if ruleset >= 0:
            libc.syscall(restrict, ruleset, 0)
            os.close(ruleset)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    libc.capset(header, (ctypes.c_uint32 * 6)())
