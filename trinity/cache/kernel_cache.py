"""The folder of compiled kernels, which is refused where others can write into it.

The files there are read by ``pickle``, so whoever writes one runs code as this user.
"""

from __future__ import annotations

import os
import sys

from trinity.cache.private_folder import distrusted, make_private

VARIABLE = "TRINITY_CACHE_DIR"
# What the user chose, where this module has put another folder in its place.
_chosen: list[str | None] = []
_seen: str | None = ""


def cache_root() -> str:
    """The folder of all that trinity keeps: what TRINITY_CACHE_DIR says, or the user's."""
    chosen = _chosen[0] if _chosen else os.environ.get(VARIABLE)
    return chosen or _of_user()


def secure() -> None:
    """Let compiled kernels be read from, and kept in, a folder that can be trusted.

    It is called before the first kernel is loaded. Where the folder cannot be trusted, standard
    error says so, and TRINITY_CACHE_DIR becomes a private one in the folder for temporary files.
    """
    global _seen
    chosen = os.environ.get(VARIABLE)
    if chosen == _seen:
        return
    _seen = chosen
    folder = chosen or os.path.join(_of_user(), "kernels")
    why = distrusted(folder)
    if why is None:
        try:
            make_private(folder)
        except OSError:  # the kernels' own cache says what is wrong
            return
        why = distrusted(folder)  # somebody else may have made it
    if why is None:
        return
    other = _temporary()
    print(
        f"warning: compiled kernels are not read from {folder}: {why}, or set {VARIABLE} to "
        f"another one; until then they are kept in {other}",
        file=sys.stderr,
    )
    _chosen[:] = [chosen]
    _seen = os.environ[VARIABLE] = other


def _of_user() -> str:
    """The folder in the user's cache directory."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        base = os.path.join(home, "Library", "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return os.path.join(base, "trinity")


def _temporary() -> str:
    """A private folder, the same for all of this user's processes where that can be."""
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
