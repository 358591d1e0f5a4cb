"""The parent's side of one confined process: its start, the pipes to it, and its end."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from trinity.processes.confined_child import LENGTH, REPLY

_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TZ")
_START = (
    "import sys, json; start = json.loads(sys.stdin.buffer.readline());"
    " sys.path[:] = start.pop('path');"
    " from trinity.processes.confined_child import run; run(**start)"
)


class ChildProcess:
    """The process and the two pipes to it. Raises OSError if it cannot be started."""

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
            start_new_session=True,  # the parent handles Ctrl-C; a kill reaches the whole group
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        self._late = False

    def exchange(
        self, message: bytes, seconds: float, longest: int
    ) -> tuple[bytes, bytes | bytearray]:
        """Send ``message`` and return the reply's kind and JSON; both are empty if the child died.

        The child is killed after ``seconds`` by the clock. Raises OSError if no thread can be
        started to do that.
        """
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
        """Whether something outside killed the child, or it got too little processor time.

        It is known after ``cause_of_death``.
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
        self.process.returncode = 0  # only the parent process can wait for the child

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read(self, length: int) -> bytearray:
        assert self.process.stdout is not None
        data = bytearray()
        while len(data) < length:
            piece = self.process.stdout.read(min(length - len(data), 1 << 20))
            if not piece:
                break
            data += piece
        return data  # a copy of many megabytes would hold the interpreter's lock

    @contextlib.contextmanager
    def _deadline(self, seconds: float) -> Any:
        """Kill the child after ``seconds``, which ends a read or write that waits for it."""

        def expire() -> None:
            self._late = True
            self._kill()

        timer = threading.Timer(seconds, expire)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError as error:
            raise OSError(f"no thread can watch it: {error}") from error
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


def _interpreter() -> str:
    if getattr(sys, "frozen", False):
        raise ValueError("a frozen program has no Python interpreter to start")
    spawn = sys.modules.get(
        "multiprocessing.spawn"
    )  # a program that embeds Python names an interpreter there
    executable = sys.executable if spawn is None else spawn.get_executable()
    if not executable:
        raise ValueError("sys.executable names no Python interpreter")
    return os.fsdecode(executable)


def search_path() -> list[str]:
    """The child's module search path: this process's, and the folders of both packages.

    An editable installation need not be in sys.path.
    """
    path = []
    for folder in sys.path:
        with contextlib.suppress(OSError):  # a current folder that was removed
            path.append(os.path.abspath(folder))
    packages = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    kernels = importlib.util.find_spec("trinity_kernels")
    if kernels is not None and kernels.origin is not None:
        packages.append(os.path.dirname(os.path.abspath(kernels.origin)))
    return list(dict.fromkeys([*path, *map(os.path.dirname, packages)]))
