"""The responses of a batch in a file, one per line, which a later run can continue."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any

from trinity.errors import InputError
from trinity.server.batches.batch_rows import LONGEST_ANSWER, lines_of

try:
    import fcntl
except ImportError:  # Windows: files are not locked
    fcntl = None  # type: ignore[assignment]

SYNCED = 64  # lines; they are flushed to the disk after this many
BEGINNING = b'{"id": "batch_req_'  # of every line


class BatchOutput:
    """A file of responses, to which one process at a time adds.

    Responses of an earlier process are kept, and ``done`` has the ids of their rows; an
    unfinished last line is removed. ``known``: the ids of the batch's rows.
    Raises: InputError if the file cannot be written, if another process writes to it, or if it
    contains anything but responses to rows of this batch; OSError.
    """

    def __init__(self, path: Path, known: Collection[str]) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(
                f"{path}: cannot be written ({error.strerror}); give another file"
            ) from error
        try:
            self.done, self.failed = self._begin(known)
        except BaseException:
            os.close(self._file)
            raise
        self._unsynced = 0

    def _begin(self, known: Collection[str]) -> tuple[set[str], int]:
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{self._path}: another process writes to it; wait for it") from error
        done, failed, end = set[str](), 0, 0
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise InputError(
                f"{self._path}: is not a file; a batch reads its results again to continue"
            )
        for number, line in enumerate(lines_of(self._path, LONGEST_ANSWER), 1):
            if not line.endswith(b"\n") and line[: len(BEGINNING)] == BEGINNING[: len(line)]:
                break  # a process was killed while it wrote this line
            name, status = self._line(number, line)
            if name not in known or name in done:
                twice = "appears twice" if name in done else "belongs to no row of this batch"
                raise InputError(
                    f"{self._path}: line {number}: custom_id {name!r:.80} {twice}; give another "
                    "file for the results, or remove this one"
                )
            done.add(name)
            failed += status != 200
            end += len(line)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        return done, failed

    def _line(self, number: int, line: bytes) -> tuple[str, int]:
        try:
            answer = json.loads(line)
            return str(answer["custom_id"]), int(answer["response"]["status_code"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{self._path}: line {number} is not a result of a batch; give another file "
                "for the results"
            ) from error

    def add(self, custom_id: str, number: int, status: int, body: Any) -> None:
        """Write the response to row ``number``. Raises: OSError."""
        line = json.dumps({
            "id": f"batch_req_{number}", "custom_id": custom_id,
            "response": {"status_code": status, "request_id": f"row_{number}", "body": body},
            "error": None,
        }, ensure_ascii=False)  # fmt: skip
        data = memoryview(line.encode("utf-8", "backslashreplace") + b"\n")
        while data:
            data = data[os.write(self._file, data) :]
        self.done.add(custom_id)
        self.failed += status != 200
        self._unsynced += 1
        if self._unsynced >= SYNCED:
            self.sync()

    def sync(self) -> None:
        """Flush to the disk."""
        os.fsync(self._file)
        self._unsynced = 0

    def close(self) -> None:
        """End writing and release the lock, even if the disk fails. Raises: OSError."""
        try:
            self.sync()
        finally:
            os.close(self._file)
