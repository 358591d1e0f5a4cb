"""The folder of compiled kernels; a folder that other users can write to is not used.

The files are machine code (on macOS and Windows they are read by ``pickle``), so whoever writes one
can run code as this user.
"""

from __future__ import annotations

import os
import sys

from trinity.cache.private_folder import distrusted, make_private

VARIABLE = "TRINITY_CACHE_DIR"
# The user's choice, if this module has replaced it.
_chosen: list[str | None] = []
_seen: str | None = ""


def cache_root() -> str:
    """Return the cache folder: TRINITY_CACHE_DIR, or ``trinity`` in the user's cache directory.

    Without a home directory it is a folder for temporary files.
    """
    chosen = _chosen[0] if _chosen else os.environ.get(VARIABLE)
    return chosen or _of_user() or os.environ.get(VARIABLE) or _temporary()


def secure() -> None:
    """Make sure that compiled kernels are read from and written to a trusted folder.

    Call this before the first kernel is loaded. If the folder cannot be trusted, a warning goes to
    standard error, and TRINITY_CACHE_DIR is set to a private folder for temporary files.
    """
    global _seen
    chosen = os.environ.get(VARIABLE)
    if chosen == _seen:
        return
    _seen = chosen
    own = _of_user()
    if not chosen and own is None:
        other = _use_temporary(chosen)
        print(
            f"warning: the user's home directory is not known: compiled kernels are kept in "
            f"{other}; set HOME, or set {VARIABLE} to a folder",
            file=sys.stderr,
        )
        return
    folder = chosen or os.path.join(own or "", "kernels")
    why = distrusted(folder)
    if why is None:
        try:
            make_private(folder)
        except OSError:  # the kernels' cache reports the reason
            return
        why = distrusted(folder)  # another user may have created it
    if why is None:
        return
    other = _use_temporary(chosen)
    print(
        f"warning: compiled kernels are not read from {folder}: {why}, or set {VARIABLE} to "
        f"another one; until then they are kept in {other}",
        file=sys.stderr,
    )


def _use_temporary(chosen: str | None) -> str:
    """Set TRINITY_CACHE_DIR to a temporary folder and return it; the user chose ``chosen``."""
    global _seen
    _chosen[:] = [chosen]
    _seen = os.environ[VARIABLE] = other = _temporary()
    return other


def _of_user() -> str | None:
    """Return the folder in the user's cache directory; None if no home directory is known."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    # A "~" that is left means that the system knows no home directory.
    return None if base.startswith("~") else os.path.join(base, "trinity")


def _temporary() -> str:
    """Return a private temporary folder; if possible, all processes of this user share it."""
    import atexit
    import shutil
    import tempfile

    folder = os.path.join(tempfile.gettempdir(), f"trinity-kernels-{os.geteuid()}")
    try:
        make_private(folder)
        if distrusted(folder) is None:
            return folder
    except OSError:
        pass
    folder = tempfile.mkdtemp(prefix="trinity-kernels-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
