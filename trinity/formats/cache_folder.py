"""Where trinity keeps what it made of models, beside the compiled kernels."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path


def cache_folder(kind: str) -> Path:
    """The folder for things of one kind, which need not exist.

    It lies in TRINITY_CACHE_DIR, else in the user's cache directory.
    """
    if chosen := os.environ.get("TRINITY_CACHE_DIR"):
        return Path(chosen) / kind
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "trinity" / kind


def digest(value: object) -> str:
    """A short name for a value that JSON can say."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def states(paths: Iterable[str]) -> list[tuple[int, int]]:
    """Sizes and times of modification. Raises OSError where there is no such file."""
    found = map(os.stat, paths)
    return [(state.st_size, state.st_mtime_ns) for state in found]
