"""Kernels are compiled once each, by processes that end when they use too much memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from scripts.kernels import compile_kernels
from scripts.kernels.compile_kernels import MOST_MEMORY, Wanted

WANTED = [("matmul", level, str(number)) for level in ("avx2", "portable") for number in range(20)]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[list[Wanted]]:
    """What each process compiled; each kernel takes a fifth of the memory."""
    found: list[list[Wanted]] = []

    @contextmanager
    def process() -> Iterator[Callable[[Wanted], int]]:
        own: list[Wanted] = []
        found.append(own)

        def compiled(kernel: Wanted) -> int:
            own.append(kernel)
            return len(own) * MOST_MEMORY // 5

        yield compiled

    monkeypatch.setattr(compile_kernels, "compiling_process", process)
    return found


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_kernel_is_compiled_once(processes: list[list[Wanted]], workers: int) -> None:
    compile_kernels.compile_all(WANTED, workers)
    assert sorted(kernel for own in processes for kernel in own) == sorted(WANTED)
    assert max(map(len, processes)) <= 5


def test_progress_is_written(
    processes: list[list[Wanted]], capsys: pytest.CaptureFixture[str]
) -> None:
    compile_kernels.compile_all(WANTED, 1)
    assert capsys.readouterr().out == f"25 of {len(WANTED)}\n"


def test_a_process_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with (
        pytest.raises((subprocess.CalledProcessError, BrokenPipeError)),
        compile_kernels.compiling_process() as compiled,
    ):
        compiled(WANTED[0])
