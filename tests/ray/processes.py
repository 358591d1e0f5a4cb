"""The processes that a process has started."""

from __future__ import annotations

from pathlib import Path


def descendants(process: int, title: bytes) -> list[int]:
    """Those of a process whose command line contains ``title``."""
    return [
        int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline")
        if title in content_of(path) and process in ancestors(int(path.parent.name))
    ]  # fmt: skip


def content_of(path: Path) -> bytes:
    """The content of a file, which may be gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def ancestors(process: int) -> set[int]:
    """The process that started it, the one that started that, and so on."""
    found = set[int]()
    while process > 1:
        status = content_of(Path(f"/proc/{process}/stat")).rpartition(b")")[2].split()
        if len(status) < 2:
            break
        process = int(status[1])
        found.add(process)
    return found
