"""The history of chat entries, in a file that only its owner may read."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory

from trinity_kernels.whole_file import whole_file

LARGEST = 1 << 20  # bytes; a larger file loses its older half
_ENTRY = b"\n# "  # the beginning of an entry in the file


def state_folder() -> Path:
    """Return the folder for trinity's state, which need not exist.

    Raises: RuntimeError if no home directory is known.
    """
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "trinity"


class KeptHistory(FileHistory):
    """Entries in a file of mode 600. Raises OSError if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb") as file:
            os.chmod(path, 0o600)
            data = file.read()
        if len(data) > LARGEST:
            start = data.find(_ENTRY, len(data) - LARGEST // 2)
            with whole_file(str(path)) as kept:
                kept.write(data[start:] if start >= 0 else b"")
        super().__init__(str(path))

    def store_string(self, string: str) -> None:
        """Store an entry; a full disk is ignored."""
        with suppress(OSError):
            super().store_string(string.encode("utf-8", "replace").decode())
