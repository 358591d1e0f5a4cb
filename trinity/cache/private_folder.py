"""Folders that nobody but this user and the system's administrator can write into.

Where others can, what lies there may be theirs: compiled code that would run with this user's
rights, or weights in place of a model's. Imports next to nothing.
"""

from __future__ import annotations

import os
import stat

_WRITE, _SEARCH = 0o022, 0o011  # by group and others
_GROUP = 0o070
_LEVELS = 2  # of folders below, which are looked at too


def distrusted(folder: str) -> str | None:
    """Why ``folder`` must not be trusted, and what to do; None where it can be.

    All folders above decide what the name means, and so do links on the way: each must belong to
    this user or to the administrator, and others must not be able to write into it, unless a
    folder above it is closed to them or, of those above, has the sticky bit. Two levels of folders
    below are looked at in the same way. The folder need not exist. Lists of access rights beyond
    owner, group and others are not read. On Windows nothing is: a user's folders are his own.
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
    """Make a folder, and those above that are missing, for this user alone. Raises OSError."""
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
    """All folders above a path, the highest first, then the path."""
    found = [path]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found[::-1]


def _rights(found: os.stat_result) -> int:
    """What others may do. A group with its owner's number has no other members."""
    return found.st_mode & (~_GROUP if found.st_gid == found.st_uid else ~0)


def _is_closed(place: str) -> bool:
    """Whether others reach nothing below a folder."""
    try:
        found = os.lstat(place)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and not _rights(found) & _SEARCH


def _fault(place: str, closed: bool, *, sticky: bool = False) -> str | None:
    """What is wrong with one folder or link; None where it is fine or not there."""
    try:
        found = os.lstat(place)
    except OSError:
        return None
    # In a container the system's files may all belong to an owner without a name.
    if found.st_uid not in (0, os.geteuid(), os.stat("/").st_uid):
        return f"{place} belongs to another user (number {found.st_uid}); use a folder of your own"
    if closed or stat.S_ISLNK(found.st_mode) or (sticky and found.st_mode & stat.S_ISVTX):
        return None
    if _rights(found) & _WRITE and found.st_mode & stat.S_ISVTX:
        return f"other users can write into {place}; use a folder of your own in it"
    if _rights(found) & _WRITE:
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
