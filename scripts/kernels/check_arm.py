"""Kernels and golden models on emulated ARM processors, compared with NumPy and with this machine.

    python scripts/kernels/check_arm.py                  every processor
    python scripts/kernels/check_arm.py neoverse-n1      some
    python scripts/kernels/check_arm.py --quick          some types of the products
    python scripts/kernels/check_arm.py --code build/code    the wheel's code; compiles nothing

On each processor every kernel of its levels is held against its NumPy formula (``portable`` where
there is no other level), tests/data's golden models against llama.cpp and PyTorch, and the ternary
model's tokens and bits against those of this machine. Kernels are compiled here, into the cache of
the emulated machine, and only what is new; with ``--code`` they come from a folder that
package_code.py wrote, as in the wheel. Without QEMU, mmdebstrap or Debian's mirror it says so
and ends with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from scripts.kernels.arm_root import ArmRoot, NoArmRootError, emulated  # noqa: E402
from scripts.kernels.cross_compile import quick  # noqa: E402
from trinity_kernels.ops.matmul.activations import FORMS  # noqa: E402
from trinity_kernels.selftest import kernels_of  # noqa: E402
from trinity_kernels.trial import KERNELS as TRIED  # noqa: E402

# No dot products; dot products; products of int8 matrices and SVE; all that QEMU knows.
PROCESSORS = ("cortex-a72", "neoverse-n1", "neoverse-v1", "max")
FOLDER = ROOT / "build" / "arm"
EACH = 24  # kernels that a process compiles
DESCRIBE = """
import json, sys
from llvmlite import binding
from trinity_kernels.isa import possible_levels
from trinity_kernels.processor import target
made_for = binding.get_process_triple(), target().name, target().features
levels = possible_levels()
print(json.dumps({"version": sys.version, "target": made_for, "levels": levels}))
"""
GOLDEN = """
import hashlib, json, sys, trinity
def golden(level):
    with trinity.load(trinity.demo_model(), kv_type="f32", isa=level, threads=2) as model:
        ids = model.tokenize("Prince Andrew looked at the sky and said that")
        answer = model.generate(ids, max_tokens=16, temperature=0.0)
        bits = hashlib.sha256(model.logits(ids).tobytes()).hexdigest()
    return {"tokens": answer.token_ids, "bits": bits}
"""
# One process, for to import the compiler takes ten seconds of emulation.
CHECK = """
import pytest
from trinity_kernels import isa, selftest
listed, here, tests = map(json.loads, sys.argv[1:])
for level, kernels in listed.items():
    assert isa.select_level(level) == level
    for name, tag in kernels:
        lost = f"WRONG {level}: {name} {tag} is not found where it was compiled to"
        selftest.KERNELS[name].kernel.address(level, tag, lambda: print(lost, flush=True))
        if error := selftest.check(name, level, tag):
            print(f"WRONG {level}: {name} {tag}: {error}", flush=True)
    for what, found in golden(level).items():
        if found != here[what]:
            print(f"WRONG {level}: {what} of the ternary model: {found}, on x86 {here[what]}")
if status := pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not full", *tests]):
    print(f"WRONG golden models: pytest ended with {status!r}, see above")
"""
TESTS = (
    "tests/models/test_stories.py",
    "tests/test_demo_model.py::test_likelihoods_are_those_of_pytorch",
)


class Failed(Exception):  # noqa: N818
    """A process of the emulated machine, or the compiler, failed."""


class Processor:
    """An emulated processor: its description, and Python on it."""

    def __init__(self, root: ArmRoot, cpu: str, cache: Path, kernels: Path) -> None:
        self.root, self.cpu, self.cache, self.kernels = root, cpu, cache, kernels
        self.seen = json.loads(self.python("-c", DESCRIBE))
        levels = self.seen["levels"]
        self.levels = [level for level in levels if level != "portable"] or levels

    def python(self, *arguments: str) -> str:
        """Return the output of Python with these arguments. Raises: Failed."""
        path = os.pathsep.join((str(ROOT), str(self.kernels)))
        done = self.root.run(
            self.cpu, arguments, self.cache, path, cwd=ROOT, capture_output=True
        )  # fmt: skip
        if done.returncode != 0:
            raise Failed(f"status {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}")
        return done.stdout

    def compile(self, kernels: list[tuple[str, str, str]], workers: int) -> None:
        """Fill this processor's cache. Raises: Failed."""
        parts = [kernels[start : start + EACH] for start in range(0, len(kernels), EACH)]
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(self._compile_some, parts))

    def _compile_some(self, kernels: list[tuple[str, str, str]]) -> None:
        request = {**self.seen, "cache": str(self.cache), "kernels": kernels}
        command = [sys.executable, str(ROOT / "scripts" / "kernels" / "arm_cache.py")]
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"the compiler ended with {done.returncode}: {done.stderr[-2000:]}")


def with_code(code: Path) -> Path:
    """Return a copy of the kernels' sources with machine code, as in an installed wheel."""
    made = FOLDER / "packaged"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(ROOT / "kernels", made, ignore=shutil.ignore_patterns("__pycache__"))
    name = "linux-aarch64"
    shutil.copytree(code / name, made / "trinity_kernels" / "code" / name)
    return made


def check(processor: Processor, few: bool, packaged: bool, workers: int, here: Any) -> list[str]:
    """Return what is wrong on a processor, or nothing. ``few``: only some types of the products."""
    listed = {level: kernels_of(level) for level in processor.levels}
    if few:
        for level, kernels in listed.items():
            some = quick(level)
            listed[level] = [pair for pair in kernels if pair in some or pair[1] not in FORMS]
    wanted = [(name, level, tag) for level in listed for name, tag in listed[level]]
    tried = [(name, level, tag) for level in processor.seen["levels"] for name, tag in TRIED[level]]
    if not packaged:
        processor.compile(list(dict.fromkeys([*tried, *wanted])), workers)
    asked = [json.dumps(each) for each in (listed, here, TESTS)]
    said = processor.python("-c", GOLDEN + CHECK, *asked)
    wrong = [line for line in said.splitlines() if line.startswith("WRONG ")]
    if packaged:
        wrong += [f"WRONG compiled: {path.name}" for path in processor.cache.rglob("*.code")]
    return [said[-2000:], *wrong] if wrong else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("processors", nargs="*", default=PROCESSORS)
    parser.add_argument("--quick", action="store_true", help="some types of the products")
    parser.add_argument("--workers", type=int, default=2, help="compilers at a time")
    parser.add_argument("--code", type=Path, help="a folder of machine code that is used")
    options = parser.parse_args()
    try:
        there = emulated(options.processors)
        root = ArmRoot(FOLDER / "root")
    except NoArmRootError as error:
        print(f"skipped: {error}")
        return 0
    for name in options.processors:
        if name not in there:
            print(f"{name}: skipped, this QEMU does not emulate it", flush=True)
    cache, kernels = FOLDER / "cache", ROOT / "kernels"
    if options.code is not None:
        cache, kernels = FOLDER / "packaged-cache", with_code(options.code)
        shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-c", f"{GOLDEN}print(json.dumps(golden(None)))"]
    path = os.pathsep.join((str(ROOT), str(ROOT / "kernels")))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True
    )
    bad = 0
    for name in there:
        started = time.monotonic()
        try:
            processor = Processor(root, name, cache, kernels)
            count = sum(len(kernels_of(level)) for level in processor.levels)
            wrong = check(
                processor, options.quick, options.code is not None, options.workers,
                json.loads(done.stdout),
            )  # fmt: skip
        except Failed as failed:
            wrong = [str(failed)]
        bad += bool(wrong)
        seconds = time.monotonic() - started
        told = f"{'some of ' if options.quick else ''}{count} kernels of " if not wrong else ""
        print(
            f"{name}: {told}{', '.join(processor.levels)}: "
            f"{'WRONG' if wrong else 'right'}, {seconds:.0f} s",
            *wrong, sep="\n  ", flush=True,
        )  # fmt: skip
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
