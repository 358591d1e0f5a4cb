"""Each kernel is compiled once, in child processes that end when they use too much memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kernels.process import run_python
from trinity_kernels import compiling_processes
from trinity_kernels.compiling_processes import MOST_MEMORY, Wanted, compile_apart

WANTED = [("matmul", level, str(number)) for level in ("avx2", "portable") for number in range(20)]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[list[Wanted]]:
    """Return what each process compiled; each kernel takes a fifth of the memory."""
    found: list[list[Wanted]] = []

    @contextmanager
    def process() -> Iterator[Callable[[Wanted], int]]:
        own: list[Wanted] = []
        found.append(own)

        def compiled(kernel: Wanted) -> int:
            own.append(kernel)
            return len(own) * MOST_MEMORY // 5

        yield compiled

    monkeypatch.setattr(compiling_processes, "_process", process)
    return found


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_kernel_is_compiled_once(processes: list[list[Wanted]], workers: int) -> None:
    compile_apart(WANTED, lambda text: None, workers)
    assert sorted(kernel for own in processes for kernel in own) == sorted(WANTED)
    assert max(map(len, processes)) <= 5


def test_progress_has_a_count(processes: list[list[Wanted]]) -> None:
    said: list[str] = []
    compile_apart(WANTED, said.append)
    assert said[0] == "compiling kernel 1 of 40, once on this machine"
    assert len(said) == len(WANTED)


def test_a_process_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises((subprocess.CalledProcessError, BrokenPipeError)):
        compile_apart(WANTED, lambda text: None, 1)


COMPILED = """
from trinity_kernels import compiling_processes as module
from trinity_kernels.selftest import KERNELS, check
kernel = KERNELS["scale"].kernel, "portable", "none"
wanted = module.not_compiled([kernel])
module.compile_apart(wanted, lambda text: None)
print(module.available(), wanted, module.not_compiled([kernel]), check("scale", *kernel[1:]))
"""


@pytest.mark.full
def test_what_a_process_compiled_is_found(tmp_path: Path) -> None:
    said = run_python(COMPILED, TRINITY_CACHE_DIR=str(tmp_path))
    assert said.strip() == "True [('scale', 'portable', 'none')] [] None"
