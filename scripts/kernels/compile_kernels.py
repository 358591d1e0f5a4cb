"""Compile the kernels of all levels that this machine runs into the cache on disk.

    python scripts/kernels/compile_kernels.py
    python scripts/kernels/compile_kernels.py --kinds    # what `make test` needs

A process that compiles keeps 10 to 30 MB for each kernel, one that reads it from the cache 0.2 MB.
So processes compile a few each and end, two at a time, and the tests find everything compiled. What
the cache holds already is not compiled again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.matrix import KINDS  # noqa: E402
from trinity_kernels.code_files import cache_folder  # noqa: E402
from trinity_kernels.isa import available_levels, python_only  # noqa: E402
from trinity_kernels.ops.matmul.activations import FORMS  # noqa: E402
from trinity_kernels.selftest import KERNELS, kernels_of  # noqa: E402

EACH = 12  # kernels that a process compiles
Wanted = tuple[str, str, str]  # kernel, level, tag


class _NotCompiledError(Exception):
    pass


def _stop() -> None:
    raise _NotCompiledError


def not_compiled(kinds: bool) -> list[Wanted]:
    """The kernels that the cache lacks; ``kinds``: of products those of one type of each file."""
    found: dict[Wanted, None] = {}
    for level in available_levels():
        for name, tag in kernels_of(level):
            if kinds and tag in FORMS and tag not in KINDS:
                continue
            kernel = KERNELS[name].kernel
            try:
                kernel.address(level, tag, _stop)
            except _NotCompiledError:
                found[name, kernel.level_of(level), tag] = None
    return list(found)


def compile_here(wanted: list[Wanted]) -> None:
    for name, level, tag in wanted:
        KERNELS[name].kernel.address(level, tag)


def compile_apart(wanted: list[Wanted]) -> None:
    """Compile in a process of its own. Raises: CalledProcessError where it fails."""
    command = [sys.executable, str(Path(__file__).resolve()), "--these", json.dumps(wanted)]
    subprocess.run(command, check=True, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--kinds", action="store_true", help="one quantization type of each file")
    parser.add_argument("--these", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.these is not None:
        compile_here(options.these)
        return
    if cache_folder() is None or python_only():
        return  # nothing can be kept
    wanted = not_compiled(options.kinds)
    if wanted:
        print(f"compiling {len(wanted)} kernels", flush=True)
    parts = [wanted[start : start + EACH] for start in range(0, len(wanted), EACH)]
    with ThreadPoolExecutor(options.workers) as pool:
        list(pool.map(compile_apart, parts))


if __name__ == "__main__":
    main()
