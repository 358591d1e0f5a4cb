"""The environment of a measurement: processor, versions, memory of the process."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

from trinity.tools.arm_names import arm_processor
from trinity_kernels.control_groups import limits
from trinity_kernels.processor import target

PACKAGES = ("trinity-llm", "numpy", "numba", "llvmlite")


def peak_rss() -> int | None:
    """Return the peak memory of this process, mapped files included; None if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def anonymous_rss() -> int | None:
    """Return the memory of this process that belongs to no file; None if unknown."""
    value = first_value("/proc/self/status", "RssAnon")
    return None if value is None else int(value.split()[0]) * 1024


def available_memory() -> int | None:
    """Return the memory that is available without swapping; None if unknown."""
    value = first_value("/proc/meminfo", "MemAvailable")
    if value is not None:
        free = int(value.split()[0]) * 1024
        limit = limits().memory_bytes
        return free if limit is None else min(free, limit)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def machine() -> dict[str, object]:
    """The processor and the system."""
    path = "/proc/cpuinfo"
    cpu = first_value(path, "model name") or arm_processor(path)
    if cpu is None:
        cpu = f"{target().name} ({platform.machine()})"
    return {"cpu": cpu, "logical_cpus": os.cpu_count(), "system": platform.platform()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter."""
    by_name = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            by_name[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            by_name[package] = "not installed"
    return by_name


def first_value(path: str, key: str) -> str | None:
    """Return the value of the first "key: value" line of a Linux status file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        return None
    return None
