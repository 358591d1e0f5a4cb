"""Cores of a machine that its replicas share out among themselves."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Set
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: processes are not bound to cores
    fcntl = None  # type: ignore[assignment]

_held: list[int] = []  # locked files, until the process ends


def pin(count: int) -> Set[int]:
    """Bind this process, and threads that it starts later, to ``count`` free cores.

    A core is a locked file, which the system frees when the process ends, however it does. Returns
    the cores; none if too few are free or if the system binds no processes.
    """
    if fcntl is None or not hasattr(os, "sched_setaffinity"):
        return frozenset()
    folder = Path(tempfile.gettempdir()) / f"trinity-cores-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    taken = dict[int, int]()
    for core in sorted(os.sched_getaffinity(0)):
        if len(taken) == count:
            break
        file = os.open(folder / str(core), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            taken[core] = file
    if len(taken) < count:
        for file in taken.values():
            os.close(file)
        return frozenset()
    _held.extend(taken.values())
    os.sched_setaffinity(0, taken)
    return taken.keys()
