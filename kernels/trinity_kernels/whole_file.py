"""Files that appear under their names only when they are complete, for every writer there is.

A file is written beside its place as ``.trinity-*.tmp``, flushed, and renamed. The writer holds a
lock on it (flock), which the system drops however the writer ends: so a file of that name that can
be locked has no writer any more, and the next writer in that folder removes it. Names carry a mark
of the machine, because locks need not reach across a network. Where there are no locks, nothing is
removed.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX, SUFFIX = ".trinity-", ".tmp"
UNLOCKED = "unlocked"
_ATTEMPTS = 8  # another writer's clean-up holds the lock of a new file for an instant at most
_unfinished: set[str] = set()
if hasattr(os, "register_at_fork"):  # they belong to the parent
    os.register_at_fork(after_in_child=_unfinished.clear)


def _machine() -> str:
    """This machine's mark in names: eight hexadecimal digits."""
    return f"{zlib.crc32(os.uname().nodename.encode('utf-8', 'replace')):08x}"


@contextmanager
def whole_file(path: str, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write; at the end of the ``with`` block it takes its place at ``path``.

    After an exception nothing is left and an older file is untouched. A link at ``path`` is
    followed; the mode of a file that is replaced is kept, a new one gets what the umask says.
    ``durable`` flushes data and folder to the disk. Raises: OSError.
    """
    target = os.path.realpath(path) if os.path.islink(path) else path
    folder = os.path.dirname(target) or "."
    remove_abandoned(folder)
    temporary, file = _create(folder)
    try:
        with file:
            mode = _mode_of(target)
            if mode is not None:  # what is private stays so from the first byte
                os.fchmod(file.fileno(), mode | stat.S_IRUSR | stat.S_IWUSR)
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            if fcntl is not None:  # while the lock is held
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                os.replace(temporary, target)
        if fcntl is None:  # Windows renames no open file
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        _unfinished.discard(temporary)
    if durable:
        _sync(folder)


def check_writable(folder: str) -> None:
    """Raise OSError if no file can be created in ``folder``."""
    temporary, file = _create(folder)
    file.close()
    with suppress(FileNotFoundError):  # without its lock anybody may have removed it
        os.unlink(temporary)
    _unfinished.discard(temporary)


def remove_abandoned(folder: str) -> None:
    """Remove the temporary files in ``folder`` whose writers are gone."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                mark, dash, _ = entry.name.removeprefix(PREFIX).partition("-")
                if not dash or mark == _machine():
                    with suppress(OSError):
                        _remove_if_abandoned(entry.path)


def discard_unfinished() -> None:
    """Remove what this process is writing, because it ends now."""
    for path in list(_unfinished):
        with suppress(OSError):
            os.unlink(path)


def _create(folder: str) -> tuple[str, BinaryIO]:
    """A new, locked temporary file."""
    marks = [UNLOCKED] if fcntl is None else [*[_machine()] * _ATTEMPTS, UNLOCKED]
    for mark in marks:
        path = os.path.join(folder, f"{PREFIX}{mark}-{os.urandom(8).hex()}{SUFFIX}")
        _unfinished.add(path)
        taken = False
        try:
            file = open(path, "xb")  # noqa: SIM115
            taken = mark == UNLOCKED or _locked(file)
            if taken:
                return path, file
            file.close()
        finally:
            if not taken:
                with suppress(OSError):
                    os.unlink(path)
                _unfinished.discard(path)
    raise AssertionError("the last attempt needs no lock")


def _locked(file: BinaryIO) -> bool:
    """Lock a new file; False where that fails, or where somebody took it for abandoned."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return os.fstat(file.fileno()).st_nlink > 0


def _remove_if_abandoned(path: str) -> None:
    """Remove a file that nobody has locked; the lock is held until it is gone."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        return
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.lstat(path)):  # not renamed meanwhile
            os.unlink(path)
    finally:
        os.close(descriptor)


def _mode_of(target: str) -> int | None:
    """Permissions of a file that will be replaced; None where there is none, and on Windows."""
    if fcntl is None:
        return None
    with suppress(OSError):
        return os.stat(target).st_mode & 0o777
    return None


def _sync(folder: str) -> None:
    """Make the rename durable where the system lets a folder be flushed."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
