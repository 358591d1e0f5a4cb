"""Kernels compiled by child processes: several at a time, and none keeps the compiler's memory.

The children write the code into the user's cache, where this process finds it. A process that
compiles never gives memory back, so a child that uses more than MOST_MEMORY ends, and a new one
continues.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from trinity_kernels._jit import Kernel
from trinity_kernels.code_files import cache_folder
from trinity_kernels.isa import interpreted

MOST_MEMORY = 384 << 20  # bytes of resident memory
WORKERS = 2
Wanted = tuple[str, str, str]  # a kernel's name, level, tag
# The compiler keeps most objects that it makes: frequent garbage collections take 5 % of its time.
_START = """
import gc, json, resource, sys
gc.set_threshold(200_000, 20, 100)
sys.path[:] = json.loads(sys.argv[1])
from trinity_kernels.selftest import KERNELS
unit = 1 if sys.platform == "darwin" else 1024
for line in sys.stdin:
    name, level, tag = json.loads(line)
    KERNELS[name].kernel.address(level, tag)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, flush=True)
"""


class _NotCompiledError(Exception):
    pass


def _stop() -> None:
    raise _NotCompiledError


def not_compiled(kernels: Iterable[tuple[Kernel, str, str]]) -> list[Wanted]:
    """Those of ``kernels`` (kernel, level, tag) that neither the package nor the cache has."""
    found: dict[Wanted, None] = {}
    for kernel, level, tag in kernels:
        try:
            kernel.address(level, tag, _stop)
        except _NotCompiledError:
            found[kernel.name, kernel.level_of(level, tag), tag] = None
    return list(found)


def available() -> bool:
    """Whether child processes can be started, and what they compile be found."""
    started = sys.executable and not getattr(sys, "frozen", False) and sys.platform != "win32"
    return bool(started) and not interpreted() and cache_folder() is not None


def compile_apart(
    wanted: list[Wanted], progress: Callable[[str], None], workers: int = WORKERS
) -> None:
    """Compile in ``workers`` processes at a time; every second one starts at the end of the list.

    A process therefore compiles kernels of one level in a row, which share most of their code.

    Raises: CalledProcessError or OSError where a process fails.
    """
    left, lock, count = deque(wanted), threading.Lock(), len(wanted)

    def work(place: int) -> None:
        while left:
            with _process() as compiled:
                memory = 0
                while memory < MOST_MEMORY:
                    with lock:
                        if not left:
                            return
                        kernel = left.pop() if place % 2 else left.popleft()
                        number = count - len(left)
                        progress(f"compiling kernel {number} of {count}, once on this machine")
                    memory = compiled(kernel)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))


@contextmanager
def _process() -> Iterator[Callable[[Wanted], int]]:
    """A process that compiles a kernel at a call, which returns the memory in use."""
    # -I: neither the current folder nor PYTHON* variables; the path is this process's.
    command = [sys.executable, "-I", "-B", "-W", "ignore", "-c", _START, json.dumps(sys.path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def compiled(kernel: Wanted) -> int:
            print(json.dumps(kernel), file=asked, flush=True)
            answer = answers.readline()
            if not answer:
                raise subprocess.CalledProcessError(process.wait(), [*command[:1], *kernel])
            return int(answer)

        yield compiled
