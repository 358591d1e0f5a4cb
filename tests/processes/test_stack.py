"""Small stacks: the command line enlarges them, or reports that it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

resource = pytest.importorskip("resource")

ROOT = Path(__file__).resolve().parents[2]
# What Python refuses by its own limit, in whose measure of a stack this one fits.
NESTED = """
import threading
from trinity.processes.command_line import begin
begin()

def nested():
    import json
    import msgspec
    for read in (json.loads, msgspec.json.decode):
        try:
            read("[" * 100_000)
        except RecursionError:
            print("refused", flush=True)
    deep = []
    for _ in range(100_000):
        deep = [deep]
    try:
        repr(deep)
    except RecursionError:
        print("refused", flush=True)

nested()
thread = threading.Thread(target=nested)
thread.start()
thread.join()
"""


def run(arguments: list[str], soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    """Run Python with limits of the stack in KB."""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "kernels")))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (soft << 10, hard << 10)),
    )


@pytest.mark.parametrize(("soft", "hard"), [(128, 8192), (512, 2048), (1024, 1024)])
def test_nested_input_is_refused_by_the_main_thread_and_by_others(soft: int, hard: int) -> None:
    done = run(["-c", NESTED], soft, hard)
    assert (done.returncode, done.stdout.split()) == (0, ["refused"] * 6), done.stderr


@pytest.mark.parametrize("size", [128, 1023])
def test_a_stack_that_is_too_small_is_an_error(size: int) -> None:
    done = run(["-m", "trinity", "--version"], size, size)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: the stack is limited to {size} KB, and trinity needs 1024 KB: raise the limit "
        "(ulimit -s 8192)\n"
    )


@pytest.mark.full
def test_a_model_runs_in_the_smallest_stack() -> None:
    command = ["-m", "trinity", "generate", "-m", "trinity/data/demo.gguf", "--prompt", "The"]
    arguments = [*command[:4], str(ROOT / command[4]), *command[5:], "-n", "3"]
    small, usual = (
        run([*arguments, "--temperature", "0"], size, size).stdout for size in (1024, 8192)
    )
    assert small == usual
    assert small
