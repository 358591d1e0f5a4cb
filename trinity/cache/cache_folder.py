"""Where trinity keeps what it made of models, beside the compiled kernels."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from trinity.cache.kernel_cache import cache_root


def cache_folder(kind: str) -> Path:
    """The folder for things of one kind, which need not exist.

    It is in TRINITY_CACHE_DIR, else in the user's cache directory.
    """
    return Path(cache_root()) / kind


def digest(value: object) -> str:
    """A short name for a value that JSON can say."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def states(paths: Iterable[str]) -> list[tuple[int, int]]:
    """Sizes and times of modification. Raises OSError where there is no such file."""
    found = map(os.stat, paths)
    return [(state.st_size, state.st_mtime_ns) for state in found]
