"""One kept stream: a task writes it, and any number of clients read it from any position."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Scope, Send

from trinity.server.errors import ApiError, api_error
from trinity.server.stream import BEAT_COMMENT, EVENTS, Stream

LAST_EVENT = "last-event-id"
MOST_BYTES = 4 << 20  # of one stream; of a longer one the beginning is dropped
STEP = 64 << 10  # bytes between two calls of ``grown``
LATE = ApiError(408, "the reader was too slow: part of the stream was dropped")


class Kept:
    """One stream; its bytes from ``start`` to ``end`` are in memory.

    ``left`` is called when the last reader leaves before the end, ``grown`` for every ``STEP``
    bytes written.
    """

    def __init__(
        self, name: str, path: str, left: Callable[[Kept], object] = lambda kept: None,
        grown: Callable[[Kept], object] = lambda kept: None,
    ) -> None:  # fmt: skip
        self.name = name
        self.path = path  # of the request
        self.started = int(time.time())  # seconds since the epoch
        self.completed: int | None = None  # as ``started``; None while it is being written
        self.start = 0
        self.readers = 0
        # The start of the response, or the error that prevented it.
        self.begun: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.begun.add_done_callback(_seen)
        self._left, self._grown = left, grown
        self._request_bytes, self._checked = 0, 0
        self._timer: asyncio.TimerHandle | None = None
        self._data = bytearray()
        self._ends = array("Q")  # of the numbered events, in bytes of the stream
        self._numbers = False
        self._changed = asyncio.Event()

    def write(self, stream: Stream, scope: Scope, request_bytes: int) -> None:
        """Start the task that writes ``stream``; the request's body has ``request_bytes``."""
        self._failure = stream.failure
        self._request_bytes = request_bytes
        self.task = asyncio.create_task(_run(stream, scope, self._take))
        self.task.add_done_callback(self._ended)

    @property
    def end(self) -> int:
        """Bytes written so far."""
        return self.start + len(self._data)

    @property
    def events(self) -> int:
        """Numbered events written so far; the first has number 1."""
        return len(self._ends)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, with those of the request while the stream is being written."""
        return len(self._data) + self._ends.itemsize * len(self._ends) + self._request_bytes

    def later(self, seconds: float, do: Callable[[Kept], object]) -> None:
        """Call ``do`` after this many seconds, instead of an earlier timer."""
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, do, self)

    def shorten(self, count: int) -> None:
        """Drop ``count`` bytes of the beginning, if it is positive."""
        if count > 0:
            count = min(count, len(self._data))
            del self._data[:count]
            self.start += count

    def cancel(self) -> None:
        """End it without waiting. Calling it again has no effect."""
        self._stop_timer()
        self.task.cancel()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()  # a timer that is cancelled refers to nothing
            self._timer = None

    async def read(self, place: int, send: Send, *, after: int | None = None) -> None:
        """Send the stream from byte ``place`` on, to its end.

        ``after``: from the end of the event of that number instead; 204 if it was the last.
        Raises: as ``begun``; ApiError for a number that no event has.
        """
        self.readers += 1
        try:
            begun = await asyncio.shield(self.begun)
            if after is not None and self.completed is not None:
                if after == self.events and self._is_last(after):
                    await send({"type": "http.response.start", "status": 204, "headers": []})
                    await send({"type": "http.response.body", "body": b""})
                    return
                self._check(after)
            await send(begun)
            if after is not None:
                await self._come(after, send)
                place = self.end if after > self.events else self._ends[after - 1] if after else 0
            await self._send(place, send)
        finally:
            self.readers -= 1
            if not self.readers and self.completed is None:
                self._left(self)

    async def _come(self, number: int, send: Send) -> None:
        """Wait for an event, with keep-alives; send an error if it never comes."""
        while number > (known := self.events) and self.completed is None:
            await self._changed.wait()
            if self._numbers and known == self.events and self.completed is None:
                await send(_body(BEAT_COMMENT))
        try:
            self._check(number)
        except ApiError as error:
            await send(_body(self._failure(error)))

    async def _send(self, place: int, send: Send) -> None:
        while True:
            changed = self._changed
            late = place < self.start
            piece = self._failure(LATE) if late else bytes(self._data[place - self.start :])
            if piece:
                place += len(piece)
                await send(_body(piece))
            if late or (not piece and self.completed is not None):
                await send({"type": "http.response.body", "body": b""})
                return
            if not piece:
                await changed.wait()

    def _check(self, number: int) -> None:
        if number > self.events:
            raise ApiError(
                400, f"Last-Event-ID is {number}; the stream has {self.events} events", LAST_EVENT
            )

    def _is_last(self, number: int) -> bool:
        return number > 0 and self._ends[number - 1] == self.end

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            self._numbers = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            self.begun.set_result(message)
        body = message.get("body", b"")
        if self._numbers and message.get(EVENTS) and body.endswith(b"\n\n"):
            for event in body.split(b"\n\n")[:-1]:
                self._data += b"id: %d\n%b\n\n" % (self.events + 1, event)
                self._ends.append(self.end)
        else:
            self._data += body
        self.shorten(len(self._data) - MOST_BYTES)
        if self.end >= self._checked + STEP:
            self._checked = self.end
            self._grown(self)
        self._tell()

    def _ended(self, task: asyncio.Future[Exception | None]) -> None:
        error = None if task.cancelled() else task.result()
        if not self.begun.done():
            cancelled = ApiError(400, "the stream was cancelled", code="cancelled")
            self.begun.set_exception(error or cancelled)
        self.completed = int(time.time())
        self._request_bytes = 0
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def _run(app: ASGIApp, scope: Scope, send: Send) -> Exception | None:
    """Write a stream. Returns its error, without frames, which would refer to the request."""
    try:
        await app(scope, _nothing, send)
    except asyncio.CancelledError:
        return None
    except Exception as error:
        if api_error(error).status < 500:
            error.__traceback__ = error.__context__ = error.__cause__ = None
        return error
    return None


async def _nothing() -> Message:
    """An ASGI ``receive`` of a client that never disconnects."""
    await asyncio.Future()
    raise AssertionError


def _body(piece: bytes) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": True}


def _seen(begun: asyncio.Future[Message]) -> None:
    """Mark an error as seen, so that the event loop does not report it."""
    if not begun.cancelled():
        begun.exception()
