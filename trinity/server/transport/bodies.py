"""Reading request bodies, within limits.

A body has a length and a time within which it must arrive; all bodies together have a size.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from starlette.types import Message, Receive, Scope

from trinity.server.errors import ApiError
from trinity.server.transport.pace import LEAST_RATE, STALL_SECONDS

# Bytes of each body that are not counted, so that there is always room for small requests.
FREE_BYTES = 64 << 10
# Bytes of all bodies together, or twice the largest allowed body if that is more.
MOST_BYTES = 128 << 20
# Bytes of a form that is collected in pages of its own: joining 20 MB takes 10 ms.
MAPPED_BYTES = 1 << 20
# Bytes of an uploaded file that are written together.
WRITTEN_BYTES = 256 << 10
# A body that has sent nothing for this many seconds may be refused to make room for others.
SILENT_SECONDS = 0.02

Run = Callable[..., Awaitable[Any]]  # runs a function in a thread


class LeftError(Exception):
    """The client has disconnected."""


class Bodies:
    """The bodies of all requests that have not been answered."""

    def __init__(self, largest: int) -> None:
        self.most = max(MOST_BYTES, 2 * largest)
        self.total = 0
        self.coming = set[CountedBody]()

    @contextmanager
    def counted(self) -> Iterator[CountedBody]:
        """A body whose bytes are counted until the end of ``with``."""
        body = CountedBody(self)
        try:
            yield body
        finally:
            body.release()

    def take(self, count: int) -> None:
        """Count bytes. If they are too many, the body that has stalled for longest is refused.

        Raises: ApiError 503 if none has stalled.
        """
        before = asyncio.get_running_loop().time() - SILENT_SECONDS
        while self.total + count > self.most:
            stalled = [body for body in self.coming if body.counts and body.heard <= before]
            if not stalled:
                raise ApiError(
                    503, f"running requests have bodies of {self.total} bytes; the limit is "
                    f"{self.most}", code="too_many_bytes", headers={"Retry-After": "1"},
                )  # fmt: skip
            min(stalled, key=lambda body: body.heard).refuse()
        self.total += count


class CountedBody:
    """A body: ``counts`` bytes of it count; ``heard`` is when the last byte arrived."""

    def __init__(self, bodies: Bodies) -> None:
        self.counts = 0
        self.heard = asyncio.get_running_loop().time()
        self._bodies = bodies
        self._bytes = self._window = 0
        self._limit: asyncio.Timeout | None = None

    @asynccontextmanager
    async def coming(self, receive: Receive, *, in_memory: bool) -> AsyncGenerator[Receive]:
        """A ``receive`` for use within ``async with`` that limits bytes and their rate.

        Only bytes that are kept ``in_memory`` count. Raises: ApiError 408 if they arrive too
        slowly, 503 if all bodies together are too large.
        """

        async def received() -> Message:
            message = await receive()
            self._came(len(message.get("body", b"")), in_memory)
            return message

        self._bodies.coming.add(self)
        try:
            async with asyncio.timeout(STALL_SECONDS) as self._limit:
                yield received
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time") from None
        finally:
            self._bodies.coming.discard(self)

    def refuse(self) -> None:
        """End reading this body, to make room for others."""
        self._bodies.coming.discard(self)
        self.release()
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(0)

    def release(self) -> None:
        """Stop counting. Calling it again has no effect."""
        self._bodies.total -= self.counts
        self.counts = 0

    def _came(self, count: int, in_memory: bool) -> None:
        if self not in self._bodies.coming:
            return  # it was refused, and must not get more time
        self.heard = asyncio.get_running_loop().time()
        self._bytes += count
        if self._bytes - self._window >= LEAST_RATE * STALL_SECONDS and self._limit is not None:
            self._window = self._bytes
            if not self._limit.expired():
                self._limit.reschedule(self.heard + STALL_SECONDS)
        more = max(0, self._bytes - FREE_BYTES) - self.counts
        if in_memory and more > 0:
            self._bodies.take(more)
            self.counts += more


@asynccontextmanager
async def upload(
    scope: Scope, receive: Receive, coming: CountedBody, most: int
) -> AsyncGenerator[AsyncGenerator[bytes]]:
    """Within ``async with``, the chunks of a body that its handler reads.

    Raises: ApiError 408 if they arrive too slowly, 413 for a long body; LeftError.
    """
    async with coming.coming(receive, in_memory=False) as received:
        yield chunks_of(scope, received, most)


async def read_body(
    scope: Scope, receive: Receive, most: int, run: Run, *, is_form: bool = False
) -> bytes | mmap:
    """The whole body; a large form is in pages of its own.

    ``run`` joins another large body in a thread: for 4 MB that takes 4 ms.

    Raises: ApiError 413 for a long body; LeftError.
    """
    length = length_of(scope, most) if is_form else 0
    if length < MAPPED_BYTES:
        chunks = [chunk async for chunk in chunks_of(scope, receive, most)]
        if sum(map(len, chunks)) < MAPPED_BYTES:
            return b"".join(chunks)
        joined: bytes = await run(b"".join, chunks)
        return joined
    pages = mmap(-1, length)
    async for chunk in chunks_of(scope, receive, most):
        pages.write(chunk)
    return pages


async def store_body(
    scope: Scope, receive: Receive, most: int, folder: Path, grow: Callable[[int], None], run: Run
) -> bytes | mmap:
    """The whole body in an unnamed file in ``folder``. ``grow`` gets the sizes of its parts.

    ``run`` writes it in threads, because a write waits for the disk.

    Raises: ApiError 413 for a long body, 507 for a full disk; LeftError.
    """
    try:
        with await run(partial(TemporaryFile, dir=folder, buffering=0)) as file:
            waiting, size = list[bytes](), 0
            async for chunk in chunks_of(scope, receive, most):
                grow(len(chunk))
                waiting.append(chunk)
                size += len(chunk)
                if size >= WRITTEN_BYTES:
                    await run(_write, file, waiting)
                    waiting, size = [], 0
            await run(_write, file, waiting)
            return mmap(file.fileno(), 0, access=ACCESS_READ) if file.tell() else b""
    except OSError as error:
        raise ApiError(507, f"the body cannot be stored: {error.strerror}") from error


def _write(file: IO[bytes], chunks: list[bytes]) -> None:
    left = memoryview(b"".join(chunks))
    while left:
        left = left[file.write(left) :]


def length_of(scope: Scope, most: int) -> int:
    """The Content-Length of a request, or 0. Raises: ApiError 413 for a long body."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            if len(value) > 18 or int(value) > most:
                raise too_long(most)
            return int(value)
    return 0


def too_long(most: int) -> ApiError:
    """The refusal of a body that is too long."""
    return ApiError(413, f"the body has more than {most} bytes", code="body_too_long")


async def chunks_of(scope: Scope, receive: Receive, most: int) -> AsyncGenerator[bytes]:
    """The chunks of the body as they arrive. Raises: ApiError 413 for a long body; LeftError."""
    length_of(scope, most)
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise LeftError
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > most:
            raise too_long(most)
        yield chunk
