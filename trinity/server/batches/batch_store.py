"""Batches of a server in a folder: the state of each, and its responses so far."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from trinity.errors import InputError
from trinity.server.errors import ApiError
from trinity.server.file_store import write
from trinity.server.schemas import decoder, encode

Status = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling",
    "cancelled",
]  # fmt: skip
ENDED = frozenset({"failed", "completed", "expired", "cancelled"})
WINDOW = 24 * 3600  # seconds after which the rows of a batch that have not run expire
MOST_BATCHES = 1000
_NAME = re.compile(r"(msg)?batch_[0-9a-f]{24}")


class BatchError(msgspec.Struct):
    """An error in a file of requests; ``line`` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchErrors(msgspec.Struct):
    """All known errors of a batch."""

    data: list[BatchError]
    object: Literal["list"] = "list"


class Counts(msgspec.Struct):
    """Rows."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class BatchObject(msgspec.Struct):
    """A batch, in OpenAI's form; times are seconds since the epoch."""

    id: str
    endpoint: str
    input_file_id: str
    created_at: int
    expires_at: int
    completion_window: Literal["24h"] = "24h"
    status: Status = "validating"
    object: Literal["batch"] = "batch"
    errors: BatchErrors | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: Counts = msgspec.field(default_factory=Counts)
    metadata: dict[str, str] | None = None

    def become(self, status: Status) -> None:
        """Set the status, and the time since which it holds."""
        self.status = status
        if status != "validating":
            setattr(self, f"{status}_at", int(time.time()))


class BatchStore:
    """The batches in ``folder``. Raises: InputError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot be created: {error.strerror}") from error
        # Names of batches that have ended, which no process changes any more.
        self._ended = set[str]()
        for batch in self.all():
            if batch.status in ENDED - {"failed"}:  # a process was killed before it did so
                self.clean(batch)

    def add(
        self, input_file: str, endpoint: str, metadata: dict[str, str] | None, *,
        prefix: str = "batch_", total: int = 0,
    ) -> BatchObject:  # fmt: skip
        """Add a batch, of ``total`` rows if they were counted.

        Raises: ApiError 429 if there are too many, 507 if the disk is full.
        """
        if len(self._names()) >= MOST_BATCHES:
            raise ApiError(429, f"there are {MOST_BATCHES} batches; remove some from the folder")
        now = int(time.time())
        name = f"{prefix}{secrets.token_hex(12)}"
        batch = BatchObject(name, endpoint, input_file, now, now + WINDOW, metadata=metadata)
        batch.request_counts.total = total
        try:
            self.save(batch)
        except OSError as error:
            raise ApiError(507, f"the batch cannot be stored: {error.strerror}") from error
        return batch

    def save(self, batch: BatchObject) -> None:
        """Write the state of a batch. Raises: OSError."""
        write(self._folder / f"{batch.id}.json", encode(batch))

    def all(self) -> Iterator[BatchObject]:
        """The batches, in no order."""
        return self._read(self._names())

    def unfinished(self) -> Iterator[BatchObject]:
        """The batches that have not ended, in no order. Only they are read."""
        names = self._names()
        self._ended &= names
        for batch in self._read(names - self._ended):
            if batch.status in ENDED:
                self._ended.add(batch.id)
            else:
                yield batch

    def _names(self) -> set[str]:
        try:
            files = os.listdir(self._folder)
        except FileNotFoundError:
            return set()
        names = {file[:-5] for file in files if file.endswith(".json")}
        return {name for name in names if _NAME.fullmatch(name)}

    def _read(self, names: Iterable[str]) -> Iterator[BatchObject]:
        for name in names:
            with suppress(ApiError):
                yield self.get(name)

    def get(self, name: str) -> BatchObject:
        """A batch as it was last written. Raises: ApiError 404."""
        missing = ApiError(404, f"there is no batch {name!r:.80}", "batch_id", "batch_not_found")
        if not _NAME.fullmatch(name):
            raise missing
        try:
            data = (self._folder / f"{name}.json").read_bytes()
            batch: BatchObject = decoder(BatchObject).decode(data)
        except (OSError, msgspec.DecodeError, RecursionError):
            raise missing from None
        if batch.id != name:
            raise missing
        if batch.status in ("validating", "in_progress") and self.is_cancelled(name):
            batch.become("cancelling")  # the task that runs it has not noticed yet
        return batch

    def cancel(self, batch: BatchObject) -> None:
        """Request the end of a batch from the process that runs it.

        Raises: ApiError 507 on a full disk.
        """
        try:
            self._cancelled(batch.id).touch()
            self.save(batch)
        except OSError as error:
            with suppress(OSError):
                self._cancelled(batch.id).unlink(missing_ok=True)
            raise ApiError(507, f"the batch cannot be written: {error.strerror}") from error

    def is_cancelled(self, name: str) -> bool:
        """Whether the end of a batch was requested."""
        return self._cancelled(name).exists()

    def remove(self, batch: BatchObject) -> None:
        """Remove a batch that has ended."""
        self.clean(batch)
        (self._folder / f"{batch.id}.json").unlink(missing_ok=True)

    def clean(self, batch: BatchObject) -> None:
        """Remove the working files of a batch that has ended."""
        self.answers(batch.id).unlink(missing_ok=True)
        self._cancelled(batch.id).unlink(missing_ok=True)

    def answers(self, name: str) -> Path:
        """The file of a batch's responses while it runs."""
        return self._folder / f"{name}.answers"

    def _cancelled(self, name: str) -> Path:
        """The file that requests the end of a batch."""
        return self._folder / f"{name}.cancelled"
