"""Machine code in files, one for each kernel, type and level.

A file has the name ``KERNEL-DIGEST.code`` and the following content:

    b"trinity code 1\\n"
    32 bytes       SHA-256 of all that follows
    one line       the key: what the code was made from and for
    one line       entry, bytes of variables, then NAME@OFFSET of each call
    the code

Only files are read that this user or the administrator owns and nobody else can write, in a folder
of the same kind. The digest detects damage. It is not a signature: whoever can write the folder can
write a file with a correct digest.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trinity_kernels.flat_code import FlatCode
from trinity_kernels.whole_file import whole_file

MAGIC = b"trinity code 1\n"
SUFFIX = ".code"
_LARGEST = 1 << 24  # bytes of a file


def path_of(folder: Path, name: str, key: str) -> Path:
    """The file of a kernel's code; ``key`` is all that the code depends on."""
    return folder / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}{SUFFIX}"


def find(folder: Path, name: str, key: str, owner: int | None = None) -> FlatCode | None:
    """The code of a kernel; None if there is none, or none that can be trusted.

    ``owner``: a further user who is trusted.
    """
    content = _read(path_of(folder, name, key), owner)
    return None if content is None else parse(content, key)


def read_private(path: Path) -> bytes | None:
    """What ``write_private`` wrote; None if it is damaged or others could have written it."""
    content = _read(path) or b""
    digest, body = content[:32], content[32:]
    return body if hashlib.sha256(body).digest() == digest else None


def write_private(path: Path, body: bytes) -> None:
    """Write a file with a digest that nobody else can write. Raises: OSError."""
    _write(path, hashlib.sha256(body).digest() + body)


def keep(folder: Path, name: str, key: str, flat: FlatCode) -> None:
    """Write the code of a kernel; the file appears whole or not at all. Raises: OSError."""
    _write(path_of(folder, name, key), pack(flat, key))


def pack(flat: FlatCode, key: str) -> bytes:
    """The content of a file."""
    words = [str(flat.entry), str(flat.variables), *(f"{n}@{at}" for n, at in flat.calls)]
    body = f"{_key(key)}\n{' '.join(words)}\n".encode() + flat.code
    return MAGIC + hashlib.sha256(body).digest() + body


def parse(content: bytes, key: str) -> FlatCode | None:
    """The code in a file's content; None if the content is damaged or has another key."""
    start = len(MAGIC) + 32
    body = content[start:]
    if content[:start] != MAGIC + hashlib.sha256(body).digest():
        return None
    try:
        found, line, code = body.split(b"\n", 2)
        entry, variables, *words = line.decode("ascii").split(" ")
        pairs = [word.split("@") for word in words]
        calls = tuple((name, int(at)) for name, at in pairs)
        flat = FlatCode(code, int(entry), int(variables), calls)
    except ValueError:
        return None
    fits = 0 <= flat.entry < len(code) and 0 <= flat.variables <= _LARGEST
    fits = fits and all(0 <= at <= len(code) - 8 for _, at in calls)
    return flat if fits and found == _key(key).encode() else None


def _key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _write(path: Path, content: bytes) -> None:
    with suppress(FileNotFoundError):
        path.unlink()  # it was not used, and its permissions or its target may be another's
    with whole_file(str(path), durable=False) as file:
        if hasattr(os, "geteuid"):
            os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o755)
        file.write(content)


def _read(path: Path, owner: int | None = None) -> bytes | None:
    """The content of a file that only this user and the administrator can write."""
    try:
        if not _is_trusted(os.lstat(path.parent), stat.S_ISDIR, owner):
            return None
        # Neither a link is followed nor a pipe waited for.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    try:
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not _is_trusted(found, stat.S_ISREG, owner) or found.st_size > _LARGEST:
                return None
            return file.read(_LARGEST)
    except OSError:
        return None


def _is_trusted(found: os.stat_result, kind: Callable[[int], bool], owner: int | None) -> bool:
    """Whether a file or folder is of a kind, and others can neither own nor write it.

    A group with its owner's number has no other members. In a container the system's files may all
    belong to an owner without a name. On Windows nothing is read: a user's folders are his own.
    """
    if not kind(found.st_mode):
        return False
    if not hasattr(os, "geteuid"):
        return True
    others = 0o002 if found.st_gid == found.st_uid else 0o022
    owners = (0, os.geteuid(), os.stat("/").st_uid, owner)
    return found.st_uid in owners and not found.st_mode & others
