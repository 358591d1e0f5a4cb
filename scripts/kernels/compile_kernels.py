"""Compile the kernels of all levels that this machine runs into the cache on disk.

    python scripts/kernels/compile_kernels.py
    python scripts/kernels/compile_kernels.py --kinds    # what `make test` needs

Kernels that the cache has are not compiled again. A process that compiles never gives memory back,
so a process that uses more than MOST_MEMORY ends and another one goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.matrix import KINDS  # noqa: E402
from trinity.tools.machine import peak_rss  # noqa: E402
from trinity_kernels.code_files import cache_folder  # noqa: E402
from trinity_kernels.isa import available_levels, interpreted  # noqa: E402
from trinity_kernels.ops.matmul import variants  # noqa: E402
from trinity_kernels.selftest import KERNELS, kernels_of  # noqa: E402

MOST_MEMORY = 512 << 20  # bytes
# F16 is also the type of most embeddings, KV caches and encoders of the tests' models.
TYPES = KINDS | {"F16"}
Wanted = tuple[str, str, str]  # kernel, level, tag


class _NotCompiledError(Exception):
    pass


def _stop() -> None:
    raise _NotCompiledError


def not_compiled(kinds: bool) -> list[Wanted]:
    """The kernels that the cache lacks; ``kinds``: of products only those of TYPES."""
    products = {variant.kernel.name for variant in variants.VARIANTS}
    found: dict[Wanted, None] = {}
    for level in available_levels():
        for name, tag in kernels_of(level):
            if kinds and name in products and tag not in TYPES:
                continue
            kernel = KERNELS[name].kernel
            try:
                kernel.address(level, tag, _stop)
            except _NotCompiledError:
                found[name, kernel.level_of(level), tag] = None
    return list(found)


def compile_requested() -> None:
    """Compile what the lines of standard input name; answer each with the memory in use."""
    for line in sys.stdin:
        name, level, tag = json.loads(line)
        KERNELS[name].kernel.address(level, tag)
        print(peak_rss() or 0, flush=True)


@contextmanager
def compiling_process() -> Iterator[Callable[[Wanted], int]]:
    """A process that compiles a kernel at a call, which returns the memory in use.

    Raises: CalledProcessError where the process fails.
    """
    command = [sys.executable, str(Path(__file__).resolve()), "--child"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def compiled(kernel: Wanted) -> int:
            print(json.dumps(kernel), file=asked, flush=True)
            answer = answers.readline()
            if not answer:
                raise subprocess.CalledProcessError(process.wait(), [*command, *kernel])
            return int(answer)

        yield compiled


def compile_all(wanted: list[Wanted], workers: int) -> None:
    """Compile in ``workers`` processes at a time, half of which begin at the end.

    So kernels of one level, which share most of their code, come after each other in a process.
    """
    left, lock, count = deque(wanted), threading.Lock(), len(wanted)

    def work(place: int) -> None:
        while left:
            with compiling_process() as compiled:
                memory = 0
                while memory < MOST_MEMORY:
                    with lock:
                        if not left:
                            return
                        kernel = left.pop() if place % 2 else left.popleft()
                        done = count - len(left)
                    if done % 25 == 0:
                        print(f"{done} of {count}", flush=True)
                    memory = compiled(kernel)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--kinds", action="store_true", help="one quantization type of each file")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        compile_requested()
        return
    if cache_folder() is None or interpreted():
        return  # nothing can be kept
    wanted = not_compiled(options.kinds)
    if wanted:
        print(f"compiling {len(wanted)} kernels, once on this machine", flush=True)
        compile_all(wanted, options.workers)


if __name__ == "__main__":
    main()
