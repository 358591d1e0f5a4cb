"""The limits of CPU time and memory that a container (a control group of Linux) sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GROUPS = Path("sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Limits:
    """``cpus``: the quota in processors; ``memory_bytes``: the memory limit; None: no limit.

    ``throttled``: the share of the quota's periods in which processes were stopped.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    throttled: float | None = None


def limits(root: Path = Path("/")) -> Limits:
    """The tightest limits of this process's groups; ``root``: the folder with /proc and /sys.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1.
    """
    cpus: list[float] = []
    sizes: list[int] = []
    throttled: list[float] = []
    for folder in _folders(root):
        quota, _, period = text_of(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal() and int(period):
            cpus.append(int(quota) / int(period))
        sizes += [int(size) for size in [text_of(folder / "memory.max")] if size.isdecimal()]
        lines = text_of(folder / "cpu.stat").splitlines()
        pairs = (line.partition(" ")[::2] for line in lines)
        counts = {name: int(count) for name, count in pairs if count.isdecimal()}
        if counts.get("nr_periods"):
            throttled.append(counts.get("nr_throttled", 0) / counts["nr_periods"])
    old = root / GROUPS / "cpu"
    quota, period = text_of(old / "cpu.cfs_quota_us"), text_of(old / "cpu.cfs_period_us")
    if quota.isdecimal() and period.isdecimal() and int(period):  # -1: no quota
        cpus.append(int(quota) / int(period))
    size = text_of(root / GROUPS / "memory" / "memory.limit_in_bytes")
    if size.isdecimal() and int(size) < 1 << 60:  # without a limit, a number of nearly 64 bits
        sizes.append(int(size))
    return Limits(min(cpus, default=None), min(sizes, default=None), max(throttled, default=None))


def _folders(root: Path) -> Iterator[Path]:
    """The process's group of version 2 and all its parents."""
    top = root / GROUPS
    own = ""
    for line in text_of(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::/"):
            own = line.removeprefix("0::/")
    folder = top / own
    if ".." not in folder.parts:
        while folder != top:
            yield folder
            folder = folder.parent
    yield top


def text_of(path: Path) -> str:
    """A file of Linux, without the white space at its ends; "" if there is none."""
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""
