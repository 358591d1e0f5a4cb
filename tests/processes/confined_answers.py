"""Functions that tests/processes/test_confined.py runs in a confined process."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from typing import Any

CALLS = []


def answer(request: Any) -> Any:
    """Run the function that ``request`` names with its argument."""
    name, argument = request
    CALLS.append(name)
    return globals()[f"_{name}"](argument)


def _echo(value: Any) -> Any:
    return value


def _calls(_: Any) -> Any:
    return [os.getpid(), len(CALLS)]


def _allocate(size: int) -> int:
    return len(bytearray(size))


def _keep(size: int) -> int:
    CALLS.append(b"x" * size)  # type: ignore[arg-type]
    return os.getpid()


def _text(length: int) -> str:
    return "x" * length


def _forever(_: Any) -> None:
    while True:
        pass


def _sleep(seconds: float) -> None:
    time.sleep(seconds)


def _die(name: str) -> None:
    os.kill(os.getpid(), signal.Signals[name])
    time.sleep(60)


def _leave(status: int) -> None:
    os._exit(status)


def _segfault(_: Any) -> None:
    ctypes.string_at(0)


def _recurse(_: Any) -> None:
    _recurse(_)


class Panic(BaseException):
    """An exception as a Rust library raises it."""


def _panic(text: str) -> None:
    raise Panic(text)


def _no_json(_: Any) -> Any:
    return {1, 2}


def _print(text: str) -> str:
    print(text, flush=True)
    os.write(1, text.encode())
    os.write(2, text.encode())
    return text


def _environment(_: Any) -> dict[str, str]:
    return dict(os.environ)


def _lie(length: int) -> None:
    for file in range(3, 20):
        try:
            os.write(file, b"R" + length.to_bytes(8, "little") + b"x")
        except OSError:
            continue
    time.sleep(60)


def _rights(path: str) -> dict[str, str]:
    """Return the error of each action that must be impossible."""
    libc = ctypes.CDLL(None, use_errno=True)
    tries = {
        "open": lambda: os.open(path, os.O_RDONLY),
        "write": lambda: os.open(path, os.O_WRONLY | os.O_CREAT),
        "list": lambda: os.listdir(os.path.dirname(path)),
        "unlink": lambda: os.unlink(path),
        "rename": lambda: os.rename(path, path + "2"),
        "mkdir": lambda: os.mkdir(path + "3"),
        "socket": lambda: socket.socket(),
        "pipe": os.pipe,
        "exec": lambda: os.execv(sys.executable, [sys.executable, "-c", ""]),
        "signal": lambda: os.kill(os.getppid(), 0),
        "limit": lambda: _raise_limit(),
        "libc": lambda: libc.open(path.encode(), 0) >= 0 or 1 / 0,
    }
    errors = {}
    for name, attempt in tries.items():
        try:
            attempt()
            errors[name] = ""
        except (OSError, ValueError, ZeroDivisionError) as error:
            errors[name] = type(error).__name__
    return errors


def _raise_limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
