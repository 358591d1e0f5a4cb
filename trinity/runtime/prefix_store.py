"""Pages of evaluated texts in a folder, for later processes and for others on the same folder.

A page's file is named after a hash of whose keys and values it has and of all tokens up to its end,
so what is found under a name is what is wanted. It has a magic number, the page's tokens, the
CRC-32 of name, tokens and bytes, and the bytes of the page; a file that is not just so is removed.
What windowed and recurrent layers have of a page is a file of its own. Files appear whole, by
renaming, and are read, not mapped: a disk that fails is an error then and no signal. What was used
longest ago is removed first, under a lock that all processes on the folder take, so that all files
together stay below the limit.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Full, Queue
from threading import Lock, Thread
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.cache.private_folder import distrusted, make_private
from trinity.errors import InputError
from trinity_kernels.ops.kv_layout import PAGE
from trinity_kernels.whole_file import check_writable, whole_file

if TYPE_CHECKING:
    from trinity.runtime.interface import Engine

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAGIC = b"TPFX\x03\x00\x00\x00"
SUFFIX = ".page"
HEAD = len(MAGIC) + 4 * PAGE + 4
# Files, and bytes of them together; while the disk is behind further ones are not kept.
MOST_UNWRITTEN, MOST_BYTES = 16, 256 << 20

Bytes = NDArray[np.uint8]


class PrefixStore:
    """The pages of one model in ``folder``, of all models ``limit`` bytes at most.

    ``identity`` says whose keys and values they are. One thread reads and saves; another writes.
    Raises: InputError where the folder cannot be used.
    """

    def __init__(self, folder: Path, limit: int, identity: str) -> None:
        self.folder = folder
        self.limit = limit
        self._identity = hashlib.sha256(identity.encode()).digest()
        self._unwritten: Queue[tuple[bytes, bytes, Bytes] | None] = Queue(MOST_UNWRITTEN)
        self._held, self._lock = 0, Lock()  # bytes that are unwritten
        self._thread: Thread | None = None
        try:
            if why := distrusted(str(folder)):
                raise InputError(f"{folder}: evaluated texts are not kept there: {why}")
            make_private(str(folder))
            check_writable(str(folder))
            with self._locked():
                self._make_room(0)  # the limit may have been another one
        except OSError as error:
            raise InputError(f"{folder}: no evaluated texts can be kept there: {error}") from error

    def start(self, kind: str) -> bytes:
        """The name of what precedes the first page of texts of one kind."""
        return hashlib.sha256(self._identity + kind.encode("utf-8", "surrogatepass")).digest()

    def name(self, before: bytes, tokens: Sequence[int]) -> bytes:
        """The name of a page with these tokens behind the page called ``before``."""
        return hashlib.sha256(before + packed(tokens)).digest()

    def windowed(self, name: bytes) -> bytes:
        """The name of the windowed part of the page called ``name``."""
        return hashlib.sha256(name + b"windowed").digest()

    def has(self, name: bytes) -> bool:
        """Whether there is a file of the name."""
        return self._path(name).exists()

    def read(self, name: bytes, tokens: Sequence[int], to: Bytes) -> bool:
        """Fill ``to`` with a page's bytes; False where it is not there, or not whole."""
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size != HEAD + len(to):
                    raise ValueError(f"{size} bytes")
                stored, head = file.read(HEAD), MAGIC + packed(tokens)
                if file.readinto(to.data) != len(to) or stored != head + _check(name, head, to):
                    raise ValueError("another sum")
            os.utime(path)
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            with suppress(OSError):
                path.unlink()
            return False
        return True

    def save(self, name: bytes, tokens: Sequence[int], data: Bytes) -> None:
        """Let a page be written soon, if it is not there and the writing keeps up."""
        path = self._path(name)
        if self._unwritten.full() or self._held + len(data) > MOST_BYTES or path.exists():
            return
        head = MAGIC + packed(tokens)
        with suppress(Full), self._lock:
            self._unwritten.put_nowait((name, head, data.copy()))
            self._held += len(data)
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._write, name="trinity-prefixes", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what is still to be written."""
        if self._thread is not None and self._thread.is_alive():
            self._unwritten.put(None)
            self._thread.join()

    def _write(self) -> None:
        while (item := self._unwritten.get()) is not None:
            name, head, data = item
            path = self._path(name)
            with suppress(OSError), self._locked():  # a full disk is no fault of the model's
                size = HEAD + len(data)
                if size <= self.limit and not path.exists():
                    self._make_room(size)
                    with whole_file(str(path), durable=False) as file:
                        file.write(head + _check(name, head, data))
                        file.write(data.data)
            with self._lock:
                self._held -= len(data)

    def _make_room(self, size: int) -> None:
        """Remove what was used longest ago until there is room for so many bytes more."""
        files = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(SUFFIX):
                    with suppress(OSError):
                        status = entry.stat()
                        files.append((status.st_mtime_ns, status.st_size, entry.path))
        total = sum(length for _, length, _ in files) + size
        for _, length, path in sorted(files):
            if total <= self.limit:
                return
            with suppress(FileNotFoundError):  # another process has found it damaged
                os.unlink(path)
            total -= length

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock of the folder, which nobody holds for longer than it takes to write a page."""
        with open(self.folder / "lock", "ab") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, name: bytes) -> Path:
        return self.folder / (name.hex()[:40] + SUFFIX)


def store_of(engine: Engine, folder: Path, limit: int) -> PrefixStore:
    """The store of an engine's pages. Raises: InputError where the folder cannot be used."""
    sizes = sorted((name, *parts) for name, parts in engine.pool.sizes.items())
    of = (engine.fingerprint, engine.isa, engine.rounding, engine.context_length, sizes)
    return PrefixStore(folder, limit, " ".join(map(str, (*of, sys.byteorder))))


def _check(name: bytes, head: bytes, data: Bytes) -> bytes:
    """The CRC-32 of what a file has, and of its name."""
    return zlib.crc32(data.data, zlib.crc32(name + head)).to_bytes(4, "little")


def packed(tokens: Sequence[int]) -> bytes:
    """Tokens as 4 bytes each, little-endian."""
    return np.asarray(tokens, "<u4").tobytes()
