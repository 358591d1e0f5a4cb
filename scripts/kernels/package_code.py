"""Compile kernels for x86-64 and AArch64, to be installed with the package.

    python scripts/kernels/package_code.py build/code
    python scripts/kernels/package_code.py build/code --targets x86_64:avx2 --kernels matmul:Q4_0

Code of a target uses its level's features and nothing of this machine's processor. Processes of
their own compile it, since LLVM keeps what it allocates. Code that the folder has already is not
compiled again, so an interrupted run can be continued. `make wheel` calls this.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from scripts.kernels.cross_compile import ARM, pretend  # noqa: E402
from trinity_kernels.isa import LEVELS  # noqa: E402

if TYPE_CHECKING:
    from trinity_kernels._jit import Kernel

X86 = "x86_64-unknown-linux-gnu"
# A level of an architecture: triple, LLVM's name of the processor, features beyond the level's.
TARGETS = {
    "x86_64:portable": (X86, "x86-64", ""),
    "x86_64:avx2": (X86, "x86-64", ""),
    "x86_64:avx512vnni": (X86, "x86-64", ",-prefer-256-bit"),
    "x86_64:amx": (X86, "x86-64", ",-prefer-256-bit"),
    "aarch64:portable": (ARM, "generic", ""),
    "aarch64:neon": (ARM, "generic", ""),
    "aarch64:neon-i8mm": (ARM, "generic", ""),
}
EACH = 24  # kernels that a process compiles
# A file of a kernel: its name, level and type.
NAMED = re.compile(rf"(\w+)-({'|'.join(map(re.escape, LEVELS))})-(\w+)-[0-9a-f]+\.code")
Wanted = list[tuple[str, str]]


def level_of(target: str) -> str:
    """Return the level of a target."""
    return target.partition(":")[2]


def folder_of(out: Path, target: str) -> Path:
    """Return the folder of a target's code, as in trinity_kernels/code."""
    return out / f"linux-{target.partition(':')[0]}"


def kernels_by_name() -> dict[str, Kernel]:
    """Return all kernels: those of the self-test, and the one that measures bandwidth."""
    from trinity_kernels import bandwidth
    from trinity_kernels.selftest import KERNELS

    return {name: check.kernel for name, check in KERNELS.items()} | {"stream": bandwidth.stream}


def wanted(target: str) -> Wanted:
    """Return the kernels of a target that no other level's code serves."""
    from trinity_kernels.selftest import kernels_of

    level, kernels = level_of(target), kernels_by_name()
    return [
        (name, tag)
        for name, tag in [*kernels_of(level), ("stream", "none")]
        if kernels[name].level_of(level, tag) == level
    ]


def compile_here(out: Path, target: str, kernels: Wanted) -> None:
    """Compile kernels of a target in this process; for ``portable`` also code without levels.

    Quantizers are omitted on x86-64: without a level's features they would be slow.
    """
    from trinity_kernels.isa import _NEEDED

    (triple, name, more), level = TARGETS[target], level_of(target)
    pretend(triple, name, ",".join(f"+{one}" for one in _NEEDED[level]) + more)
    from trinity_kernels import _jit, bus_errors, code_files, code_store, team
    from trinity_kernels.ops import select
    from trinity_kernels.quantizers import groups, outermost, tables

    code_files.cache_folder = lambda: folder_of(out, target)
    code_files.package_folder = lambda architecture: None
    _jit._key = _jit.package_key
    find = code_store.find

    def find_and_name(folder: Path, name: str, key: str) -> Any:
        print(code_store.path_of(folder, name, key))
        return find(folder, name, key)

    code_store.find = find_and_name
    by_name = kernels_by_name()
    for kernel, tag in kernels:
        by_name[kernel].address(level, tag)
    if level == "portable":
        quantizers = (groups, outermost, tables) if triple == ARM else ()
        compile_entries((team, select, *quantizers))
        _jit.c_function(team._stop, "intp", "intp", "intp")
        _jit.c_function(bus_errors._on_bus_error, "int32", "intp", "intp")


def compile_entries(modules: Iterable[ModuleType]) -> None:
    """Compile the functions without levels in this process."""
    from trinity_kernels._jit import Entry

    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Entry):
                value.address  # noqa: B018


def compile_apart(out: Path, target: str, kernels: Wanted) -> set[str]:
    """Compile in a separate process; return the paths of the files. Raises: CalledProcessError."""
    command = [sys.executable, __file__, "--child", json.dumps([str(out), target, kernels])]
    return set(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--kernels", nargs="+", help="NAME:TAG of some kernels")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    options = parser.parse_args()
    some = options.kernels and [tuple(pair.split(":")) for pair in options.kernels]
    jobs = []
    for target in options.targets:
        folder_of(options.out, target).mkdir(mode=0o755, parents=True, exist_ok=True)
        kernels = [pair for pair in wanted(target) if not some or pair in some]
        starts = range(0, max(len(kernels), 1), EACH)
        jobs += [(options.out, target, kernels[start : start + EACH]) for start in starts]
    with ThreadPoolExecutor(options.workers) as pool:
        named = set().union(*pool.map(compile_apart, *zip(*jobs, strict=True)))
    if missing := [path for path in named if not Path(path).exists()]:
        print("left to the user's compiler:", *(Path(path).name for path in sorted(missing)))
    if not some and options.targets == list(TARGETS):
        for path in options.out.glob("*/*"):
            if str(path) not in named:
                path.unlink()  # of sources that have changed
    print_sizes(named - set(missing))


def print_sizes(paths: set[str]) -> None:
    """Print files and bytes by architecture and level, and for products by type."""
    by_level: dict[str, list[int]] = defaultdict(list)
    by_type: dict[str, list[int]] = defaultdict(list)
    for path in map(Path, sorted(paths)):
        found = NAMED.fullmatch(path.name)
        level = found[2] if found else "any"
        by_level[f"{path.parent.name} {level}"].append(path.stat().st_size)
        if found and found[1].startswith("matmul"):
            by_type[found[3]].append(path.stat().st_size)
    for title, sizes in (("level", by_level), ("type of products", by_type)):
        print(f"{title:<26} files    bytes")
        for name, each in sizes.items():
            print(f"{name:<26} {len(each):5} {sum(each):8}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        folder, target, kernels = json.loads(sys.argv[2])
        compile_here(Path(folder), target, kernels)
    else:
        main()
