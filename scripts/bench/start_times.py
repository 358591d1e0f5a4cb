"""Measure start-up: first text without a cache, a warm command, ``import trinity``, loading.

    python scripts/bench/start_times.py NEW/bin/python OLD/bin/python
    python scripts/bench/start_times.py NEW/bin/python --models demo FILE.gguf --rounds 7

Each interpreter has trinity installed. Interpreters and cases take turns in each round; the medians
of the rounds are printed. "cold" starts with an empty folder of compiled kernels: the number beside
it counts the kernels that it compiled, which is 0 where the package has them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from time import perf_counter

GENERATE = ("-m", "trinity", "generate", "--prompt", "Prince Andrew", "--quiet")
LOAD = "import sys, trinity; trinity.load(sys.argv[1]).close()"
DEMO = "import trinity; print(trinity.demo_model())"


def run(python: str, arguments: list[str], cache: Path) -> float:
    """Return the seconds of a process. Raises: CalledProcessError."""
    environment = {**os.environ, "TRINITY_CACHE_DIR": str(cache)}
    # With it, Python would compile all modules at each start.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = perf_counter()
    subprocess.run([python, *arguments], env=environment, check=True, capture_output=True)
    return perf_counter() - began


def compiled(cache: Path) -> int:
    """Return the number of kernels and functions in a cache folder."""
    return sum(path.suffix in (".code", ".nbc") for path in cache.rglob("*"))


def cases(model: str) -> dict[str, list[str]]:
    """Return the measurements of a model by their names in the table."""
    return {
        "cold": [*GENERATE, "--model", model, "-n", "1"],
        "warm": [*GENERATE, "--model", model, "-n", "16"],
        "load": ["-c", LOAD, model],
    }


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawTextHelpFormatter
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--models", nargs="+", default=["demo"], metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    seconds: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    counts: dict[tuple[str, str], int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(given.rounds + 1):  # the first is not counted: files, bytecode
            for number, python in enumerate(given.pythons):
                warm = Path(folder, f"warm{number}")
                for name in given.models:
                    model = name
                    if name == "demo":
                        model = subprocess.check_output([python, "-c", DEMO], text=True).strip()
                    for case, arguments in cases(model).items():
                        with tempfile.TemporaryDirectory(dir=folder) as empty:
                            cache = Path(empty) if case == "cold" else warm
                            taken = run(python, arguments, cache)
                            if case == "cold":
                                counts[python, name] = compiled(cache)
                        if turn:
                            seconds[python, name, case].append(taken)
    for (python, name, case), taken in seconds.items():
        note = f"  {counts[python, name]} compiled" if case == "cold" else ""
        print(f"{statistics.median(taken):7.3f} s  {case}  {name}  {python}{note}")


if __name__ == "__main__":
    main()
