"""Compile the kernels of all levels that this machine runs into the cache on disk.

    python scripts/kernels/compile_kernels.py
    python scripts/kernels/compile_kernels.py --kinds    # what `make test` needs
    python scripts/kernels/compile_kernels.py --idle &   # beside tests, in the time that they leave

Kernels that the cache has are not compiled again.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from scripts.kernels.package_code import compile_entries  # noqa: E402
from tests.matrix import COMPILED, KINDS  # noqa: E402
from trinity_kernels import compiling_processes, team  # noqa: E402
from trinity_kernels.compiling_processes import Wanted  # noqa: E402
from trinity_kernels.isa import available_levels  # noqa: E402
from trinity_kernels.ops import select  # noqa: E402
from trinity_kernels.ops.matmul import variants  # noqa: E402
from trinity_kernels.ops.matmul.panels import matmul_panels  # noqa: E402
from trinity_kernels.quantizers import groups, outermost, tables  # noqa: E402
from trinity_kernels.selftest import KERNELS, kernels_of  # noqa: E402

PANELS = matmul_panels.name
HAVE_ENTRIES = (team, select, groups, outermost, tables)
PRODUCTS = frozenset(variant.kernel.name for variant in variants.VARIANTS)


def not_compiled(kinds: bool) -> list[Wanted]:
    """Return the kernels that the cache lacks; with ``kinds``, those that `make test` needs."""
    return compiling_processes.not_compiled(
        (KERNELS[name].kernel, level, tag)
        for level in available_levels()[: 1 if kinds else None]
        for name, tag in kernels_of(level)
        if not kinds or name not in PRODUCTS or tag in (KINDS if name == PANELS else COMPILED)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--kinds", action="store_true", help="what `make test` needs")
    parser.add_argument("--idle", action="store_true", help="give way to all other processes")
    options = parser.parse_args()
    if options.idle:
        give_way()
    if compiling_processes.available():
        wanted = not_compiled(options.kinds)
        with ThreadPoolExecutor(1) as pool:
            entries = pool.submit(compile_entries, HAVE_ENTRIES)
            compiling_processes.compile_apart(wanted, print_some, options.workers)
        entries.result()


def give_way() -> None:
    """Let this process and its children run only where no other process wants a core."""
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    elif sys.platform != "win32":
        os.nice(19)


def print_some(text: str) -> None:
    """Print every 25th line of progress, and the first."""
    number = int(text.split()[2])
    if number == 1 or number % 25 == 0:
        print(text, flush=True)


if __name__ == "__main__":
    main()
