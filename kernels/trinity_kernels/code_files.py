"""The folder of compiled code, and what keeps it from being used.

A kill of a process that writes there leaves at most a temporary file, which the next one removes.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from trinity_kernels.whole_file import check_writable, remove_abandoned

_PACKAGE = Path(__file__).parent
# Why compiled code cannot be stored, and whether the user was told.
_problem: tuple[str, bool] | None = None


@cache
def compiler_digest() -> str:
    """A digest of the versions of Python and the compiler's packages, which are not imported."""
    digest = hashlib.sha256(sys.version.encode())
    for package in ("numba", "llvmlite"):
        digest.update(_version(package))
    return digest.hexdigest()[:16]


def _version(package: str) -> bytes:
    """A package's version, or the file that contains it; empty if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return b""
    if spec.origin is not None:
        with suppress(OSError):
            text = Path(spec.origin).with_name("_version.py").read_bytes()
            found = re.search(rb'"version": *"([^"]+)"', text)
            return found[1] if found else text
    from importlib.metadata import version

    return version(package).encode()


@cache
def cache_folder() -> Path | None:
    """Return the folder of compiled kernels; None if no folder is writable.

    It is in ``TRINITY_CACHE_DIR``, else in the user's cache directory, else in this package. Its
    name is a digest of the compiler's versions; the files' names have digests of the sources
    (sources.py). Without a folder every process compiles its kernels, and ``take_cache_problem``
    says why.
    """
    chosen = os.environ.get("TRINITY_CACHE_DIR")
    candidates = [Path(chosen)] if chosen else []
    if not chosen:
        home = os.path.expanduser("~")
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
        elif sys.platform == "darwin":
            base = os.path.join(home, "Library", "Caches")
        else:
            base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
        candidates = [_PACKAGE / "__pycache__"]
        if not base.startswith("~"):  # otherwise no home directory is known
            candidates.insert(0, Path(base) / "trinity" / "kernels")
    first_error: tuple[Path, OSError] | None = None
    for candidate in candidates:
        folder = candidate / compiler_digest()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o755, exist_ok=True)  # code_store.py refuses what others can write
            check_writable(str(folder))
        except OSError as error:
            first_error = first_error or (candidate, error)
            continue
        with suppress(OSError), os.scandir(folder) as entries:
            for place in [folder, *(entry for entry in entries if entry.is_dir())]:
                remove_abandoned(os.fspath(place))
        return folder
    assert first_error is not None
    note_problem(*first_error)
    return None


@cache
def package_folder(architecture: str) -> Path | None:
    """The folder of the code that came with this package; None if none did (`make wheel`)."""
    folder = _PACKAGE / "code" / f"{sys.platform}-{architecture}"
    return folder if folder.is_dir() else None


@cache
def package_owner() -> int:
    """The owner of this package's sources, who can change what runs here anyway."""
    return os.stat(__file__).st_uid


def take_cache_problem() -> str | None:
    """Return a message for the user, once: why compiled kernels are not stored, and what to do.

    None if they are stored.
    """
    global _problem
    if _problem is None or _problem[1]:
        return None
    _problem = (_problem[0], True)
    return _problem[0]


def note_problem(folder: Path, error: OSError) -> None:
    """Remember why code cannot be stored, for ``take_cache_problem``."""
    room = "make room there, or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    note_problem_text(
        f"compiled kernels cannot be stored in {folder} ({error.strerror or error}), so every run "
        f"compiles them again: {room}set TRINITY_CACHE_DIR to a writable folder"
    )


def note_problem_text(text: str) -> None:
    """Remember the first reason why code cannot be stored."""
    global _problem
    if _problem is None:
        _problem = (text, False)
