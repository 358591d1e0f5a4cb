"""Which cores each replica of a machine uses."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Set
from pathlib import Path

from trinity.cache.private_folder import distrusted, make_private

try:
    import fcntl
except ImportError:  # Windows: processes are not bound to cores
    fcntl = None  # type: ignore[assignment]

_held: list[int] = []  # locked files, until the process ends


def pin(count: int) -> Set[int]:
    """Bind this process, and threads that it starts later, to ``count`` free cores.

    A core is taken by locking a file. The system unlocks it when the process ends, also after a
    crash. Returns the cores; none if too few are free, if the system cannot bind processes, or if
    other users can write to the folder of the files.
    """
    if fcntl is None or not hasattr(os, "sched_setaffinity"):
        return frozenset()
    folder = Path(tempfile.gettempdir()) / f"trinity-cores-{os.getuid()}"
    try:
        make_private(str(folder))
    except OSError:
        return frozenset()
    if distrusted(str(folder)) is not None:
        return frozenset()
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
