"""Folders that only this user and the system's administrator can write to.

Files in other folders may come from other users: compiled code that would run with this user's
rights, or replaced weights. This module imports next to nothing.
"""

from __future__ import annotations

import os
import stat

_WRITE, _SEARCH = 0o022, 0o011  # mode bits of the group and others
_GROUP = 0o070
_LEVELS = 2  # levels of subfolders that are checked


def distrusted(folder: str) -> str | None:
    """Return why ``folder`` cannot be trusted and what to do, or None if it can be.

    The folder, its parents and all links on the path must belong to this user or the
    administrator, and other users must not be able to write to the folders. There are two
    exceptions: a folder is safe if others cannot enter one of its parents, and a parent is safe if
    it has the sticky bit. Two levels of subfolders are checked in the same way. The folder need not
    exist. Access control lists are not read. On Windows every folder is trusted.
    """
    if not hasattr(os, "geteuid"):
        return None
    path = os.path.abspath(folder)
    closed = False
    for way in dict.fromkeys((path, os.path.realpath(path))):
        closed = False
        for place in _from_top(way):
            why = _fault(place, closed, sticky=place != way)
            if why is not None:
                return why
            closed = closed or _is_closed(place)
    return _fault_below(path, closed, _LEVELS)


def make_private(folder: str) -> None:
    """Create a folder and its missing parents for this user only. Raises OSError."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(os.path.abspath(folder))
    make_private(above)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def _from_top(path: str) -> list[str]:
    """Return the parents of a path from the root down, then the path."""
    folders = [path]
    while (above := os.path.dirname(folders[-1])) != folders[-1]:
        folders.append(above)
    return folders[::-1]


def _rights(status: os.stat_result) -> int:
    """Return the mode bits; a group with its owner's number counts as the owner."""
    return status.st_mode & (~_GROUP if status.st_gid == status.st_uid else ~0)


def _is_closed(place: str) -> bool:
    """Whether other users cannot enter a folder."""
    try:
        status = os.lstat(place)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and not _rights(status) & _SEARCH


def _fault(place: str, closed: bool, *, sticky: bool = False) -> str | None:
    """Return what is wrong with one folder or link; None if nothing is or it does not exist."""
    try:
        status = os.lstat(place)
    except OSError:
        return None
    # In a container the system's files may all belong to an unnamed owner.
    if status.st_uid not in (0, os.geteuid(), os.stat("/").st_uid):
        return f"{place} belongs to another user (number {status.st_uid}); use a folder of your own"
    if closed or stat.S_ISLNK(status.st_mode) or (sticky and status.st_mode & stat.S_ISVTX):
        return None
    if _rights(status) & _WRITE and status.st_mode & stat.S_ISVTX:
        return f"other users can write into {place}; use a folder of your own in it"
    if _rights(status) & _WRITE:
        return f"other users can write into {place}; close it to them (chmod -R go-rwx {place})"
    return None


def _fault_below(folder: str, closed: bool, levels: int) -> str | None:
    try:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return None
    for name in names:
        why = _fault(name, closed)
        if why is None and levels > 1:
            why = _fault_below(name, closed or _is_closed(name), levels - 1)
        if why is not None:
            return why
    return None
