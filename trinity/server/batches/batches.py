"""Run batches, one at a time, while no other request runs.

A batch is a file of requests in a client's words (batch_rows.py). Each answer is written as it
comes, so a process that follows a killed one continues with the rows that have none. When all
have one, the answers become two files: responses and errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from functools import partial
from pathlib import Path

from starlette.types import ASGIApp

from trinity.errors import InputError, TrinityError
from trinity.server.batches.batch_answer import answer, answer_rows
from trinity.server.batches.batch_output import BatchOutput
from trinity.server.batches.batch_rows import LONGEST_ANSWER, Row, lines_of, rows_of
from trinity.server.batches.batch_store import (
    ENDED,
    BatchError,
    BatchErrors,
    BatchObject,
    BatchStore,
)
from trinity.server.errors import ApiError
from trinity.server.file_store import FileStore
from trinity_kernels.whole_file import whole_file

log = logging.getLogger("trinity.server")

AT_ONCE = 8  # rows of a batch that run together
MOST_ROWS = 50_000
RETRIED = (408, 429, 503)  # the server is busy or stopping; the row may succeed later
RETRIES, RETRY_SECONDS = 600, 1.0
SAVE_SECONDS = 1.0  # between writings of how many rows are answered


class Traffic:
    """Signals to batches: when ``live`` requests of clients run, and when a batch changes."""

    def __init__(self) -> None:
        self.live = 0
        self.news = asyncio.Event()


class Batches:
    """The files and batches of one owner. ``take`` runs a batch; endpoints change the stores."""

    def __init__(self, folder: Path, most_bytes: int, traffic: Traffic, owner: str = "") -> None:
        self.files = FileStore(folder / "files", most_bytes)
        self.store = BatchStore(folder / "batches")
        self._traffic = traffic
        self._owner = owner
        self._current: BatchObject | None = None
        # Held from a change of a batch's status until it is stored.
        self._changing = threading.Lock()

    def begin(self) -> None:
        """Let the queue look for batches that were added to ``store``."""
        self._traffic.news.set()

    def get(self, name: str) -> BatchObject:
        """The current state of a batch. Raises: ApiError 404."""
        current = self._current
        return current if current is not None and current.id == name else self.store.get(name)

    def cancel(self, name: str) -> BatchObject:
        """Cancel a batch: it ends before its next row. One that has ended does not change.

        One that has not begun ends at once. It writes to the disk, so call it in a thread, then
        ``begin``. Raises: ApiError 404, 507.
        """
        with self._changing:
            batch = self.get(name)
            changed = copy(batch)
            if batch.status in ENDED or batch.status == "cancelling":
                return changed
            begun = batch.status != "validating" or batch is self._current
            _cancel(changed, begun)
            self.store.cancel(changed)  # if this fails, the batch continues
            _cancel(batch, begun)
            return changed

    def delete(self, name: str) -> None:
        """Remove a batch that has ended, and its files. Raises: ApiError 404, 400."""
        with self._changing:
            batch = self.get(name)
            if batch.status not in ENDED:
                raise ApiError(400, f"{name} has not ended; cancel it first")
            self.store.remove(batch)
        for file_id in (batch.input_file_id, batch.output_file_id, batch.error_file_id):
            if file_id is not None:
                with suppress(ApiError):  # it has been removed
                    self.files.delete(file_id)

    def delete_file(self, name: str) -> None:
        """Remove a file. Raises: ApiError 404; 409 for the input of an unfinished batch."""
        with self._changing:
            unfinished = [batch.input_file_id for batch in self.store.unfinished()]
        if name in unfinished:
            raise ApiError(
                409, f"{name} is the input of a batch; cancel the batch first", "file_id"
            )
        self.files.delete(name)

    async def take(self, name: str, endpoints: Mapping[str, ASGIApp]) -> None:
        """Run a batch unless it has ended; ``endpoints`` are the applications by path."""
        try:
            await self._take(name, endpoints)
        except ApiError as error:  # its file has been removed meanwhile
            log.warning("batch %s cannot continue: %s", name, error)
        except Exception:
            log.exception("batch %s cannot continue", name)
        finally:
            self._current = None

    async def _take(self, name: str, endpoints: Mapping[str, ASGIApp]) -> None:
        """Run a batch unless it has ended. Raises: ApiError 404, and what running it raises."""
        batch = self._current = await asyncio.to_thread(self.store.get, name)
        if batch.status in ENDED:
            return
        try:
            await self._advance(batch, endpoints)
        except TrinityError as error:
            await asyncio.to_thread(self._fail, batch, error)

    async def _advance(self, batch: BatchObject, endpoints: Mapping[str, ASGIApp]) -> None:
        source = self.files.path(batch.input_file_id)
        names = await asyncio.to_thread(_checked, source, batch)
        # One process's, until it ends.
        output = await asyncio.to_thread(BatchOutput, self.store.answers(batch.id), names)
        try:
            if not await asyncio.to_thread(self._begin, batch.id, output, len(names)):
                return
            assert self._current is not None
            batch = self._current
            if batch.status == "in_progress":
                await self._answer_rows(batch, source, output, endpoints)
            await asyncio.to_thread(self._finish, batch, len(output.done) == len(names))
        finally:
            await asyncio.shield(asyncio.to_thread(output.close))

    def _begin(self, name: str, output: BatchOutput, total: int) -> bool:
        """Begin a batch or continue it; False if another process has ended it."""
        with self._changing:
            batch = self._current = self.store.get(name)
            if batch.status in ENDED:
                self.store.clean(batch)
                return False
            batch.request_counts.total = total
            self._count(batch, output)
            if batch.status == "validating":
                batch.become("in_progress")
                self.store.save(batch)
            return True

    async def _answer_rows(
        self, batch: BatchObject, source: Path, output: BatchOutput,
        endpoints: Mapping[str, ASGIApp],
    ) -> None:  # fmt: skip
        rows = (row for row in rows_of(source) if row.custom_id not in output.done)
        saved = time.monotonic()

        async def save() -> None:
            nonlocal saved
            self._count(batch, output)
            if time.monotonic() - saved > SAVE_SECONDS:
                saved = time.monotonic()
                if batch.status == "in_progress" and self.store.is_cancelled(batch.id):
                    batch.become("cancelling")  # by another process
                await asyncio.to_thread(self.store.save, batch)

        ask = partial(self._answer, batch, endpoints[batch.endpoint])
        await answer_rows(rows, output, AT_ONCE, ask, save)

    async def _answer(
        self, batch: BatchObject, endpoint: ASGIApp, row: Row
    ) -> tuple[int, object] | None:
        """Status and body, once no other request runs; None if the batch must end."""
        if row.url == "/v1/responses":  # those stored for clients are few
            row.body.setdefault("store", False)
        for left in reversed(range(RETRIES)):
            while self._traffic.live and not self._over(batch):
                await asyncio.sleep(0.02)
            if self._over(batch):
                return None
            status, body = await answer(endpoint, row, of_batch=True, owner=self._owner)
            if status not in RETRIED or not left:
                return status, body
            await asyncio.sleep(RETRY_SECONDS)
        return None

    @staticmethod
    def _over(batch: BatchObject) -> bool:
        return batch.status != "in_progress" or time.time() > batch.expires_at

    @staticmethod
    def _count(batch: BatchObject, output: BatchOutput) -> None:
        counts = batch.request_counts
        counts.failed = output.failed
        counts.completed = len(output.done) - output.failed

    def _finish(self, batch: BatchObject, complete: bool) -> None:
        """Make files of the responses, and end. It may be repeated after a process was killed."""
        cancelled = batch.status == "cancelling"
        if not cancelled:
            batch.become("finalizing")
        batch.output_file_id = batch.output_file_id or self.files.new_id()
        batch.error_file_id = batch.error_file_id or self.files.new_id()
        self.store.save(batch)
        answers = self.store.answers(batch.id)
        for file_id, kind, failed in (
            (batch.output_file_id, "output", False),
            (batch.error_file_id, "error", True),
        ):
            if _copy(answers, self.files.path(file_id), failed):
                self.files.describe(file_id, f"{batch.id}_{kind}.jsonl", "batch_output")
            elif failed:
                batch.error_file_id = None
            else:
                batch.output_file_id = None
        with self._changing:
            batch.become("cancelled" if cancelled else "completed" if complete else "expired")
            self.store.save(batch)
            self.store.clean(batch)

    def _fail(self, batch: BatchObject, error: TrinityError) -> None:
        """End a batch whose file is not valid, unless another process answers it, or has."""
        theirs = isinstance(error.__cause__, BlockingIOError)
        if theirs or self.store.get(batch.id).status in ENDED:
            return
        text = str(error).replace(str(self.files.path(batch.input_file_id)), "the file")
        where = text.partition("line ")[2].partition(":")[0].partition(" ")[0]
        line = int(where) if where.isdigit() else None
        batch.errors = BatchErrors([BatchError("invalid_request", text, line)])
        with self._changing:
            batch.become("failed")
            try:
                self.store.save(batch)
            except OSError:
                log.exception("batch %s", batch.id)


def _cancel(batch: BatchObject, begun: bool) -> None:
    batch.become("cancelling")
    if not begun:
        batch.become("cancelled")


def _checked(source: Path, batch: BatchObject) -> set[str]:
    """The ids of a file's rows. Raises: InputError."""
    names = set[str]()
    for row in rows_of(source):
        if row.url != batch.endpoint:
            raise InputError(
                f"{source}: line {row.number}: url is {row.url}, but the batch's endpoint is "
                f"{batch.endpoint}"
            )
        names.add(row.custom_id)
        if len(names) > MOST_ROWS:
            raise InputError(f"{source}: there are more than {MOST_ROWS} rows; send several files")
    if not names:
        raise InputError(f"{source}: the file has no rows")
    return names


def _copy(answers: Path, to: Path, failed: bool) -> bool:
    """Write the answers that are errors, or that are none; whether there are some."""
    some = False
    all_lines = lines_of(answers, LONGEST_ANSWER)
    lines: Iterator[bytes] = (line for line in all_lines if line.endswith(b"\n"))
    with whole_file(str(to)) as file:
        for line in lines:
            if (json.loads(line)["response"]["status_code"] != 200) == failed:
                file.write(line)
                some = True
    if not some:
        to.unlink(missing_ok=True)
    return some
