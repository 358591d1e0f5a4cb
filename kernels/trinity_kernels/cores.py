"""The default number of threads: one for each fast core that this process may use."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

from trinity_kernels.control_groups import limits, text_of


def default_threads(root: Path = Path("/")) -> int:
    """The fast physical cores that this process may use by its affinity and container limits.

    Threads share each operation equally, so a slow core would make the others wait.
    ``root``: the folder with /proc and /sys.
    """
    if hasattr(os, "sched_getaffinity"):
        cpus = set(os.sched_getaffinity(0))
    else:
        cpus = set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in fast(cpus, root):
        siblings = _cpu(root, cpu) / "topology" / "thread_siblings_list"
        cores.add(text_of(siblings) or str(cpu))
    count = len(cores)
    if sys.platform == "darwin":
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            value, size = ctypes.c_int(0), ctypes.c_size_t(4)
            name = b"hw.perflevel0.physicalcpu"
            if libc.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, 0) == 0:
                count = value.value or count
    quota = limits(root).cpus
    return max(1, count if quota is None else min(count, int(quota)))


def fast(cpus: set[int], root: Path = Path("/")) -> set[int]:
    """``cpus`` without the small cores of a processor that has two kinds; all if only small ones.

    ARM: a small core's ``cpu_capacity`` is below half of the largest; little cores have 0.25 to
    0.45 of it, the middle ones of three kinds at least 0.7. x86: small cores are in "cpu_atom".
    Source: Linux, Documentation/ABI/testing/sysfs-devices-system-cpu; arch/x86/events/intel/core.c.
    """
    capacities = {cpu: text_of(_cpu(root, cpu) / "cpu_capacity") for cpu in cpus}
    known = {cpu: int(text) for cpu, text in capacities.items() if text.isdecimal()}
    largest = max(known.values(), default=0)
    small = {cpu for cpu, capacity in known.items() if 2 * capacity < largest}
    small |= _listed(text_of(root / "sys/devices/cpu_atom/cpus"))
    return cpus - small or cpus


def _cpu(root: Path, cpu: int) -> Path:
    return root / "sys/devices/system/cpu" / f"cpu{cpu}"


def _listed(text: str) -> set[int]:
    """The numbers in Linux's lists, such as "0-3,8"."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), int(last or first) + 1))
    return found
