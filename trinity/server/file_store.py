"""A folder of the files that clients upload for batches, and of the results.

Each stored file is two files: its content, and a description (a line of JSON), which is written
last and removed first. Content without a description was left by a process that was killed, and is
removed.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from trinity.server.errors import ApiError
from trinity.server.schemas import decoder, encode
from trinity.server.state_folder import make_folder
from trinity_kernels.whole_file import whole_file

Purpose = Literal["batch", "batch_output"]
MOST_FILES = 10_000
_NAME = re.compile(r"file-[0-9a-f]{24}")
_LEFT_SECONDS = 3600.0  # age at which an incomplete file is abandoned


class FileObject(msgspec.Struct):
    """A file, in OpenAI's form."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: Purpose
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"


class FileStore:
    """The files in ``folder``, of ``most_bytes`` together at most. Raises: InputError."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder, self._most = folder, most_bytes
        self._coming = 0  # bytes of files that are being sent
        make_folder(folder)
        self._remove_left()

    def add(self, name: str, purpose: Purpose, content: bytes | memoryview) -> FileObject:
        """Store a file. Raises: ApiError 413 if there is no room, 507 if the disk is full."""
        self.check_room(len(content))
        file_id = self.new_id()
        try:
            write(self.path(file_id), content)
            return self.describe(file_id, name, purpose)
        except BaseException as error:  # content without a description has no owner
            self.path(file_id).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise ApiError(507, f"the file cannot be stored: {error.strerror}") from error
            raise

    def check_room(self, nbytes: int) -> None:
        """Raises: ApiError 413 where so many bytes more, or one file more, are too many."""
        count, used = self.used()
        if used + nbytes > self._most or count >= MOST_FILES:
            raise ApiError(
                413,
                f"{count} files have {used} bytes, and {nbytes} more exceed the "
                f"limits of {MOST_FILES} files and {self._most} bytes; delete some",
                code="storage_full",
            )

    def used(self) -> tuple[int, int]:
        """The number of files, and the bytes of everything in the folder.

        Raises: ApiError 503 where the folder is gone.
        """
        count = size = 0
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        size += entry.stat().st_size
                        count += entry.name.endswith(".data")
        except OSError as error:
            raise ApiError(503, f"the files cannot be read: {error.strerror}") from error
        return count, size

    @contextmanager
    def upload(self, used: int) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts the bytes of an upload, which stops counting after ``with``.

        The function raises ApiError 413 if all uploads and the ``used`` bytes exceed the limit.
        """
        own = 0

        def grow(count: int) -> None:
            nonlocal own
            own += count
            self._coming += count
            if used + self._coming > self._most:
                raise ApiError(
                    413,
                    f"stored files have {used} bytes and running uploads {self._coming}; the "
                    f"limit is {self._most}",
                    code="storage_full",
                )

        try:
            yield grow
        finally:
            self._coming -= own

    @staticmethod
    def new_id() -> str:
        """An unused id."""
        return f"file-{secrets.token_hex(12)}"

    def describe(self, file_id: str, name: str, purpose: Purpose) -> FileObject:
        """Register the content at a file's path. Raises: OSError."""
        size = self.path(file_id).stat().st_size
        description = FileObject(file_id, size, int(time.time()), name[:255], purpose)
        write(self._description(file_id), encode(description))
        return description

    def all(self) -> Iterator[FileObject]:
        """The files, in no order. Raises: ApiError 503 where the folder is gone."""
        try:
            names = os.listdir(self.folder)
        except OSError as error:
            raise ApiError(503, f"the files cannot be read: {error.strerror}") from error
        for name in names:
            if name.endswith(".json"):
                with suppress(ApiError):
                    yield self.get(name.removesuffix(".json"))

    def get(self, file_id: str) -> FileObject:
        """The description of a file. Raises: ApiError 404."""
        missing = ApiError(404, f"there is no file {file_id!r:.80}", "id", "file_not_found")
        if not _NAME.fullmatch(file_id):
            raise missing
        try:
            description: FileObject = decoder(FileObject).decode(
                self._description(file_id).read_bytes()
            )
        except (OSError, msgspec.DecodeError, RecursionError):
            raise missing from None
        if description.id != file_id:  # it says what to open, so it is not believed
            raise missing
        return description

    def path(self, file_id: str) -> Path:
        """The path of a file's content; ``file_id`` is from ``get`` or ``new_id``."""
        return self.folder / f"{file_id}.data"

    def delete(self, file_id: str) -> None:
        """Remove a file. Raises: ApiError 404."""
        self.get(file_id)
        self._description(file_id).unlink(missing_ok=True)
        self.path(file_id).unlink(missing_ok=True)

    def _description(self, file_id: str) -> Path:
        return self.folder / f"{file_id}.json"

    def _remove_left(self) -> None:
        """Remove temporary files of killed processes, but not those of running ones."""
        for entry in list(os.scandir(self.folder)):
            described = entry.name.endswith(".json")
            if described or Path(self.folder, entry.name).with_suffix(".json").exists():
                continue
            with suppress(OSError):
                if time.time() - entry.stat().st_mtime > _LEFT_SECONDS:
                    os.unlink(entry.path)


def write(path: Path, content: bytes | memoryview) -> None:
    """Write a file atomically, and flush it to the disk. Raises: OSError."""
    with whole_file(str(path)) as file:
        file.write(content)
