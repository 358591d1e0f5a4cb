"""Stores computed KV pages in a folder, for later processes and other processes with that folder.

The name of a page's file is a hash of the model's identity and of all tokens up to the page's end.
The file has a magic number, the page's tokens, the CRC-32 of name, tokens and bytes, and the page's
bytes; any other file is removed. The windowed part of a page has its own file. Files are renamed
into place when complete. They are read rather than mapped, so that a failing disk raises an error
and not a signal. If the limit is exceeded, the files that were used longest ago are removed, under
a lock that all processes with the folder use.
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
# Limits of unwritten files and of their bytes; while the disk cannot keep up, pages are not stored.
MOST_UNWRITTEN, MOST_BYTES = 16, 256 << 20

Bytes = NDArray[np.uint8]


class PrefixStore:
    """The pages of one model in ``folder``, which has a limit in bytes for all models.

    ``identity`` identifies the model. One thread reads and saves; another one writes.
    Raises: InputError if the folder cannot be used.
    """

    def __init__(self, folder: Path, limit: int, identity: str) -> None:
        self.folder = folder
        self.limit = limit
        self._identity = hashlib.sha256(identity.encode()).digest()
        self._unwritten: Queue[tuple[bytes, bytes, Bytes] | None] = Queue(MOST_UNWRITTEN)
        self._held, self._lock = 0, Lock()  # bytes that are not written yet
        self._thread: Thread | None = None
        try:
            if why := distrusted(str(folder)):
                raise InputError(f"{folder}: prefixes are not stored there: {why}")
            make_private(str(folder))
            check_writable(str(folder))
            with self._locked():
                self._make_room(0)  # another process may have used a higher limit
        except OSError as error:
            raise InputError(f"{folder}: no prefixes can be stored there: {error}") from error

    def start(self, kind: str) -> bytes:
        """The name that precedes the first page of texts of one kind."""
        return hashlib.sha256(self._identity + kind.encode("utf-8", "surrogatepass")).digest()

    def name(self, before: bytes, tokens: Sequence[int]) -> bytes:
        """The name of the page with these tokens after the page named ``before``."""
        return hashlib.sha256(before + packed(tokens)).digest()

    def windowed(self, name: bytes) -> bytes:
        """The name of the windowed part of the page named ``name``."""
        return hashlib.sha256(name + b"windowed").digest()

    def has(self, name: bytes) -> bool:
        """Whether a file with this name exists."""
        return self._path(name).exists()

    def read(self, name: bytes, tokens: Sequence[int], to: Bytes) -> bool:
        """Fill ``to`` with a page's bytes; False if the file is missing or damaged."""
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
        """Let the writer thread store a page, unless it exists or the disk cannot keep up."""
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
        """Write the remaining pages and end the writer thread."""
        if self._thread is not None and self._thread.is_alive():
            self._unwritten.put(None)
            self._thread.join()

    def _write(self) -> None:
        while (item := self._unwritten.get()) is not None:
            name, head, data = item
            path = self._path(name)
            with suppress(OSError), self._locked():  # a full disk must not break the model
                size = HEAD + len(data)
                if size <= self.limit and not path.exists():
                    self._make_room(size)
                    with whole_file(str(path), durable=False) as file:
                        file.write(head + _check(name, head, data))
                        file.write(data.data)
            with self._lock:
                self._held -= len(data)

    def _make_room(self, size: int) -> None:
        """Remove the files that were used longest ago until ``size`` more bytes fit."""
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
            with suppress(FileNotFoundError):  # another process has removed it as damaged
                os.unlink(path)
            total -= length

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock, which no process keeps longer than writing one page takes."""
        with open(self.folder / "lock", "ab") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, name: bytes) -> Path:
        return self.folder / (name.hex()[:40] + SUFFIX)


def store_of(engine: Engine, folder: Path, limit: int) -> PrefixStore:
    """The store for an engine's pages. Raises: InputError if the folder cannot be used."""
    sizes = sorted((name, *parts) for name, parts in engine.pool.sizes.items())
    of = (engine.fingerprint, engine.isa, engine.rounding, engine.context_length, sizes)
    return PrefixStore(folder, limit, " ".join(map(str, (*of, sys.byteorder))))


def _check(name: bytes, head: bytes, data: Bytes) -> bytes:
    """The CRC-32 of a file's name and content."""
    return zlib.crc32(data.data, zlib.crc32(name + head)).to_bytes(4, "little")


def packed(tokens: Sequence[int]) -> bytes:
    """Tokens as little-endian int32."""
    return np.asarray(tokens, "<u4").tobytes()
