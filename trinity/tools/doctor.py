"""Report CPU features, memory and bandwidth, and what slows inference down."""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trinity.cache.cache_folder import cache_folder as folder_for
from trinity.tools.amounts import size_text
from trinity.tools.machine import first_value, machine, versions
from trinity_kernels import isa
from trinity_kernels.code_files import cache_folder, take_cache_problem
from trinity_kernels.control_groups import limits
from trinity_kernels.cores import default_threads
from trinity_kernels.processor import target

LITTLE_DISK = 10**9  # in bytes; the kernels of a level take some hundred MB
MUCH_CODE = 500 * 10**6  # bytes of kernels of other versions
STOLEN = 0.05  # share of time that is worth a remark
CPU = Path("sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A cause of slowness or failure, and its remedy."""

    what: str
    do: str


@dataclass(frozen=True, slots=True)
class Examination:
    """The state of the machine; None is unknown."""

    processor: str
    system: str
    level: str
    levels: tuple[str, ...]
    logical_cpus: int
    usable_cpus: int
    threads: int  # a model's default
    cpu_quota: float | None  # of the container
    load_average: float | None
    memory_bytes: int | None
    available_bytes: int | None
    memory_limit_bytes: int | None  # of the container
    swapped_bytes: int | None
    page_bytes: int
    large_pages: str | None  # in Linux's words
    governor: str | None  # in Linux's words
    nodes: int
    kernel_cache: str | None
    kernel_cache_bytes: int
    other_kernels_bytes: int
    weights_cache: str
    weights_cache_bytes: int
    disk_free_bytes: int | None
    versions: Mapping[str, str]
    read_bandwidth_bytes_per_second: float | None = None
    findings: tuple[Diagnosis, ...] = ()


def examine(root: Path = Path("/")) -> Examination:
    """Examine this machine without measuring; ``root`` contains /proc and /sys."""
    facts, group = machine(), limits(root)
    kernels, weights = cache_folder(), folder_for("weights")
    total, free = _kilobytes(root, "MemTotal"), _kilobytes(root, "MemAvailable")
    swap, unused = _kilobytes(root, "SwapTotal"), _kilobytes(root, "SwapFree")
    seen = Examination(
        processor=str(facts["cpu"]),
        system=str(facts["system"]),
        level=isa.select_level(),
        levels=isa.available_levels(),
        logical_cpus=os.cpu_count() or 1,
        usable_cpus=_usable_cpus(),
        threads=default_threads(),
        cpu_quota=group.cpus,
        load_average=_load_average(),
        memory_bytes=total,
        available_bytes=free,
        memory_limit_bytes=group.memory_bytes,
        swapped_bytes=None if swap is None or unused is None else swap - unused,
        page_bytes=mmap.PAGESIZE,
        large_pages=_chosen(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        governor=_text(root / CPU / "cpu0/cpufreq/scaling_governor"),
        nodes=len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1,
        kernel_cache=None if kernels is None else str(kernels),
        kernel_cache_bytes=0 if kernels is None else _size(kernels),
        other_kernels_bytes=0 if kernels is None else _size_of_others(kernels),
        weights_cache=str(weights),
        weights_cache_bytes=_size(weights),
        disk_free_bytes=None if kernels is None else _free(kernels),
        versions=versions(),
    )
    throttled = group.throttled or 0.0
    return replace(seen, findings=(*_of_processor(seen, throttled, root), *_of_memory(seen)))


def measured(seen: Examination, root: Path = Path("/")) -> Examination:
    """Add the memory bandwidth, measured in a second or two, and findings about it."""
    from trinity_kernels.bandwidth import read_bandwidth

    before = _times(root)
    bandwidth = read_bandwidth(seen.threads, nbytes=256 << 20, rounds=3)
    after = _times(root)
    findings = list(seen.findings)
    if before is not None and after is not None and after[1] > before[1]:
        stolen = (after[0] - before[0]) / (after[1] - before[1])
        if stolen > STOLEN:
            findings.append(
                Diagnosis(
                    f"the host of this virtual machine used {stolen:.0%} of its time for other "
                    "machines",
                    "measure again later, or use a machine with dedicated cores",
                )
            )
    return replace(seen, read_bandwidth_bytes_per_second=bandwidth, findings=tuple(findings))


def _of_processor(seen: Examination, throttled: float, root: Path) -> Iterator[Diagnosis]:
    best = seen.levels[0]
    if isa.interpreted():
        yield Diagnosis(
            "NUMBA_DISABLE_JIT is set, so kernels run as plain Python, thousands of times slower",
            "unset NUMBA_DISABLE_JIT",
        )
    elif seen.level != best:
        yield Diagnosis(
            f"TRINITY_ISA limits the level to {seen.level}, below {best}", "unset TRINITY_ISA"
        )
    elif best == "portable":
        yield Diagnosis(
            "this processor lacks the vector instructions that trinity's faster levels use",
            "use another machine (docs/install.md, Instruction sets)",
        )
    if target().chosen:
        yield Diagnosis(
            f"NUMBA_CPU_NAME or NUMBA_CPU_FEATURES select code for {target().name}",
            "unset both, unless this processor needs them",
        )
    if seen.usable_cpus < seen.logical_cpus:
        yield Diagnosis(
            f"this process may use {seen.usable_cpus} of {seen.logical_cpus} CPUs",
            "allow more CPUs, with taskset or the container's cpuset",
        )
    if seen.cpu_quota is not None and seen.cpu_quota < seen.usable_cpus:
        stopped = f", and was stopped in {throttled:.0%} of all periods" if throttled else ""
        yield Diagnosis(
            f"the container's quota is {seen.cpu_quota:g} of {seen.usable_cpus} CPUs{stopped}",
            "raise the quota, as with docker run --cpus; until then use no more --threads than "
            "that",
        )
    if seen.load_average is not None and seen.load_average > seen.usable_cpus / 2:
        yield Diagnosis(
            f"other programs use {seen.load_average:.1f} threads on {seen.usable_cpus} CPUs",
            "stop them, or use fewer --threads: threads wait for the slowest of them",
        )
    preference = _text(root / CPU / "cpu0/cpufreq/energy_performance_preference")
    if seen.governor == "powersave" and preference not in ("performance", "balance_performance"):
        yield Diagnosis(
            "the processor saves power (the governor powersave)",
            "sudo cpupower frequency-set -g performance",
        )
    if any(_text(state) == "Discharging" for state in (root / "sys/class/power_supply").glob(
        "BAT*/status"
    )):  # fmt: skip
        yield Diagnosis("this machine runs on its battery", "plug it in")
    if seen.nodes > 1:
        yield Diagnosis(
            f"memory is divided into {seen.nodes} NUMA nodes, and distant ones are slower",
            "numactl --cpunodebind=0 --membind=0 before the command, for models that fit one node",
        )


def _of_memory(seen: Examination) -> Iterator[Diagnosis]:
    total, free = seen.memory_bytes, seen.available_bytes
    if total is not None and free is not None and free < total / 8:
        yield Diagnosis(
            f"only {size_text(free)} of {size_text(total)} of memory is free",
            "stop other programs: a model that does not fit is read from the disk for every token",
        )
    limit = seen.memory_limit_bytes
    if limit is not None and total is not None and limit < total:
        yield Diagnosis(
            f"the container's limit is {size_text(limit)} of {size_text(total)} of memory",
            "raise the limit, as with docker run --memory, for larger models",
        )
    if seen.large_pages == "never":
        yield Diagnosis(
            "large pages are off, which slows long contexts down by some percent",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )
    problem = take_cache_problem() if seen.kernel_cache is None else None
    if seen.kernel_cache is None:
        yield Diagnosis(
            problem or "compiled kernels cannot be cached, so every run compiles them again",
            "set TRINITY_CACHE_DIR to a writable folder",
        )
    elif seen.kernel_cache_bytes == 0:
        yield Diagnosis(
            "no kernels are compiled yet, so the first run takes longer", "trinity warmup"
        )
    if seen.other_kernels_bytes > MUCH_CODE:
        yield Diagnosis(
            f"kernels of other versions take {size_text(seen.other_kernels_bytes)}",
            f"remove the other folders next to {seen.kernel_cache}",
        )
    if seen.disk_free_bytes is not None and seen.disk_free_bytes < LITTLE_DISK:
        yield Diagnosis(
            f"the disk of the cache has {size_text(seen.disk_free_bytes)} left",
            "make room, or set TRINITY_CACHE_DIR to a folder on another disk",
        )


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def _kilobytes(root: Path, key: str) -> int | None:
    value = first_value(str(root / "proc/meminfo"), key)
    return None if value is None else int(value.split()[0]) * 1024


def _times(root: Path) -> tuple[int, int] | None:
    """Return ticks of other machines and of all; None if the system does not count them."""
    parts = (_text(root / "proc/stat") or "").splitlines()[:1]
    ticks = [int(part) for part in parts[0].split()[1:]] if parts else []
    return (ticks[7], sum(ticks[:8])) if len(ticks) >= 8 else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return None


def _chosen(path: Path) -> str | None:
    """Return the word in brackets of "always [madvise] never"."""
    text = _text(path)
    return None if text is None else text.partition("[")[2].partition("]")[0] or None


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _size(folder: Path) -> int:
    """Return the bytes of all files below a folder, which need not exist."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue
    return total


def _size_of_others(folder: Path) -> int:
    """Return the bytes of other versions' folders next to a folder of kernels: 16 hex digits."""
    others = [other for other in folder.parent.glob("[0-9a-f]" * 16) if other != folder]
    return sum(map(_size, others))
