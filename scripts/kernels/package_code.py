"""Compile kernels for the levels of a processor family, to be installed with the package.

    python scripts/kernels/package_code.py build/code
    python scripts/kernels/package_code.py build/code --levels avx2 --kernels copy:none matmul:Q4_0

Code for a level uses that level's features and nothing of this machine's processor. Each level is
compiled by processes of its own, since LLVM keeps what it allocates. `make wheel` calls this. What
is there already is not compiled again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from scripts.kernels.cross_compile import ARM, pretend  # noqa: E402

X86 = "x86_64-unknown-linux-gnu"
# Triple, LLVM's name, and features beyond the level's.
TARGETS = {
    "portable": (X86, "x86-64", ""),
    "avx2": (X86, "x86-64", ""),
    "avx512vnni": (X86, "x86-64", ",-prefer-256-bit"),
    "amx": (X86, "x86-64", ",-prefer-256-bit"),
    "neon": (ARM, "generic", ""),
    "neon-i8mm": (ARM, "generic", ""),
}
# The types of weights that people download.
TYPES = frozenset({
    "I2_S", "TQ1_0", "TQ2_0", "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K",
    "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
})  # fmt: skip
EACH = 10  # kernels that a process compiles
Wanted = list[tuple[str, str]]


def folder_of(out: Path, level: str) -> Path:
    """Where the code of a level is written: trinity_kernels/code has the same folders."""
    return out / f"linux-{TARGETS[level][0].partition('-')[0]}"


def wanted(level: str) -> Wanted:
    """The kernels of a level that no other level's code serves."""
    from trinity_kernels.ops.matmul.activations import FORMS
    from trinity_kernels.selftest import KERNELS, kernels_of

    return [
        (name, tag)
        for name, tag in kernels_of(level)
        if KERNELS[name].kernel.level_of(level) == level and (tag not in FORMS or tag in TYPES)
    ]


def compile_here(out: Path, level: str, kernels: Wanted) -> None:
    """Compile kernels of a level in this process; for the lowest level the team's loops, too.

    The quantizers are left out: without a level's features they would be slow.
    """
    from trinity_kernels.isa import _NEEDED

    triple, name, more = TARGETS[level]
    pretend(triple, name, ",".join(f"+{one}" for one in _NEEDED[level]) + more)
    from trinity_kernels import _jit, bus_errors, code_files, code_store, team
    from trinity_kernels.ops import select
    from trinity_kernels.selftest import KERNELS

    code_files.cache_folder = lambda: folder_of(out, level)
    code_files.package_folder = lambda architecture: None
    _jit._key = _jit.package_key
    find = code_store.find

    def find_and_name(folder: Path, name: str, key: str) -> Any:
        print(code_store.path_of(folder, name, key))
        return find(folder, name, key)

    code_store.find = find_and_name
    for kernel, tag in kernels:
        KERNELS[kernel].kernel.address(level, tag)
    if level in ("portable", "neon"):
        for module in (team, select):
            for value in vars(module).values():
                if isinstance(value, _jit.Entry):
                    value.address  # noqa: B018
        _jit.c_function(team._stop, "intp", "intp", "intp")
        _jit.c_function(bus_errors._on_bus_error, "int32", "intp", "intp")


def compile_apart(out: Path, level: str, kernels: Wanted) -> set[str]:
    """Compile in a process of its own; the paths of the files. Raises: CalledProcessError."""
    command = [sys.executable, __file__, "--child", json.dumps([str(out), level, kernels])]
    return set(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--levels", nargs="+", choices=TARGETS, default=list(TARGETS)[:4])
    parser.add_argument("--kernels", nargs="+", help="NAME:TAG of some kernels")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    options = parser.parse_args()
    some = options.kernels and [tuple(pair.split(":")) for pair in options.kernels]
    jobs = []
    for level in options.levels:
        folder_of(options.out, level).mkdir(mode=0o755, parents=True, exist_ok=True)
        kernels = [pair for pair in wanted(level) if not some or pair in some]
        starts = range(0, max(len(kernels), 1), EACH)
        jobs += [(options.out, level, kernels[start : start + EACH]) for start in starts]
    with ThreadPoolExecutor(options.workers) as pool:
        named = set().union(*pool.map(compile_apart, *zip(*jobs, strict=True)))
    if missing := [path for path in named if not Path(path).exists()]:
        print("left to the user's compiler:", *(Path(path).name for path in sorted(missing)))
    for path in options.out.glob("*/*"):
        if str(path) not in named and not some:
            path.unlink()  # of sources that have changed
    sizes: Counter[str] = Counter()
    for path in options.out.glob("*/*.code"):
        sizes[path.parent.name] += path.stat().st_size
    for name, size in sorted(sizes.items()):
        print(f"{name}: {size} bytes")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        target, level, kernels = json.loads(sys.argv[2])
        compile_here(Path(target), level, kernels)
    else:
        main()
