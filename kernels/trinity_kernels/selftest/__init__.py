"""The self-test: run each kernel once on small data and compare it with a NumPy formula.

It runs at a kernel's first use on a machine and by `trinity selftest`, so a comparison takes
milliseconds. Its data is seeded and of awkward sizes: rows that fill no panel, a last block that is
alone, positions in several blocks of attention. The formulas are in float64 and know nothing of
vector lanes, tiles or threads.

    checks.py             what is known of one kernel
    comparing.py          run one kernel, compare two arrays
    activation_forms.py   activations as products take them, computed by NumPy
    weights.py            random weights of every quantization type
    products.py           matrix products
    quantized.py          kernels that quantize activations
    kv_cache.py           pages of a KV cache
    attention.py, rope.py attention over these pages, and the kernel that fills them
    byte_attention.py     attention over int8 keys and values
    split_attention.py    attention over keys and values in two bfloat16
    rows.py               kernels that map rows of float32 to rows
    experts.py            kernels of mixture-of-experts layers
    sketch.py             kernels of the output head's sketch
    states.py             kernels that update a recurrent state
    streams.py            AltUp, sums of rows, thresholds
    trial_child.py        the first kernels of a level, in a process that may die (trial.py)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from trinity_kernels import isa
from trinity_kernels.ops.matmul import variants
from trinity_kernels.ops.matmul.panels import matmul_panels
from trinity_kernels.selftest import (
    attention,
    byte_attention,
    experts,
    products,
    quantized,
    rope,
    rows,
    sketch,
    split_attention,
    states,
    streams,
)
from trinity_kernels.selftest.checks import Check

KERNELS: dict[str, Check] = {
    **products.CHECKS,
    **quantized.CHECKS,
    **rope.CHECKS,
    **attention.CHECKS,
    **rows.CHECKS,
    **byte_attention.CHECKS,
    **split_attention.CHECKS,
    **experts.CHECKS,
    **sketch.CHECKS,
    **states.CHECKS,
    **streams.CHECKS,
}


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one comparison."""

    kernel: str
    level: str
    tag: str
    passed: bool
    error: str  # empty if kernel and formula agree
    milliseconds: float  # of the comparison, without compiling


def kernels_of(level: str) -> list[tuple[str, str]]:
    """The (kernel, tag) pairs that a level has."""
    return [
        (name, tag) for name, check in KERNELS.items() for tag in check.tags if _has(level, name)
    ]


def _has(level: str, name: str) -> bool:
    kernel = KERNELS[name].kernel
    if kernel is matmul_panels:
        return kernel in variants.kernels(level)
    return level == "amx" or not kernel.uses_tiles


def check(name: str, level: str, tag: str) -> str | None:
    """Run one kernel and compare: None if it agrees, else a sentence that says what differs."""
    return KERNELS[name].compare(KERNELS[name].kernel, level, tag)


def run(
    levels: list[str] | None = None, progress: Callable[[str], None] | None = None
) -> list[Result]:
    """Check every kernel of ``levels``, by default of all levels that this machine runs.

    Raises: IsaError for a level that this machine cannot run.
    """
    results = []
    wanted = levels or list(isa.available_levels())
    for level in wanted:
        isa.select_level(level)  # an error, before anything is compiled
    _compile_apart(wanted, progress)
    for level in wanted:
        isa.select_level(level)
        for name, tag in kernels_of(level):
            kernel = KERNELS[name].kernel
            served = kernel.level_of(level, tag)
            if served != level and served in wanted:
                continue  # the same code
            if progress:
                progress(f"{level}: {name} {tag}")
            kernel.address(level, tag)
            started = time.perf_counter()
            error = check(name, level, tag)
            elapsed = 1e3 * (time.perf_counter() - started)
            results.append(Result(name, level, tag, error is None, error or "", elapsed))
    return results


def _compile_apart(levels: list[str], progress: Callable[[str], None] | None) -> None:
    """Compile what is missing in other processes, because compiling takes much memory.

    What they do not compile, this process will, with an error where that is impossible.
    """
    # Not every process that imports this module runs the whole self-test.
    import subprocess
    from contextlib import suppress

    from trinity_kernels import compiling_processes

    if not compiling_processes.available():
        return
    kernels = ((KERNELS[n].kernel, level, tag) for level in levels for n, tag in kernels_of(level))
    wanted = compiling_processes.not_compiled(kernels)
    with suppress(OSError, subprocess.SubprocessError):
        compiling_processes.compile_apart(wanted, progress or (lambda text: None))
