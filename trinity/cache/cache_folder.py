"""Folders for files that trinity derives from models, in the cache of compiled kernels."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from trinity.cache.kernel_cache import cache_root


def cache_folder(kind: str) -> Path:
    """Return the folder for one kind of file; it need not exist.

    It is in TRINITY_CACHE_DIR if that is set, otherwise in the user's cache directory.
    """
    return Path(cache_root()) / kind


def digest(value: object) -> str:
    """Return a short hash of a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def states(paths: Iterable[str]) -> list[tuple[int, int]]:
    """Return the size and modification time of each file. Raises OSError if one is missing."""
    stats = map(os.stat, paths)
    return [(state.st_size, state.st_mtime_ns) for state in stats]
