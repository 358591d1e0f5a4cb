"""Streams that go on without their client, kept under the name that it gave, to be read again.

A request with the header X-Conversation-Id has such a stream, as in llama.cpp's server. Its bytes
are kept while it is written and for some minutes after; every reader, the first one too, gets them
from there, so none holds it up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trinity.server.errors import ApiError
from trinity.server.stream import Stream

HEADER = "x-conversation-id"
LONGEST_NAME = 512
MOST_STREAMS = 64
MOST_BYTES = 4 << 20  # of one stream; of a longer one the beginning is dropped
KEPT_SECONDS = 300.0
LATE = ApiError(408, "the reader was too slow: a part of the stream is gone")


class Kept:
    """One stream: ``start`` and ``end`` are the places of what is there of it, in bytes.

    ``begun`` is done once its headers are known, with the error where it cannot begin.
    ``started`` and ``completed`` are times in seconds since the epoch; it is written until
    ``completed`` is known.
    """

    def __init__(self, stream: Stream, scope: Scope) -> None:
        self.started = int(time.time())
        self.completed: int | None = None
        self.start = 0
        self.begun: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.begun.add_done_callback(_seen)
        self._stream = stream
        self._data = bytearray()
        self._changed = asyncio.Event()
        self.task = asyncio.ensure_future(stream(scope, _nothing, self._take))
        self.task.add_done_callback(self._ended)

    @property
    def end(self) -> int:
        """Bytes that were written."""
        return self.start + len(self._data)

    def cancel(self) -> None:
        """End it; again is harmless."""
        self.task.cancel()

    async def read(self, place: int, send: Send) -> None:
        """Send what is there from ``place`` on, and what comes. Raises: as ``begun``."""
        await send(await asyncio.shield(self.begun))
        while True:
            changed = self._changed
            late = place < self.start
            piece = self._stream.failure(LATE) if late else bytes(self._data[place - self.start :])
            if piece:
                place += len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            if late or (not piece and self.completed is not None):
                await send({"type": "http.response.body", "body": b""})
                return
            if not piece:
                await changed.wait()

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun.set_result(message)
        self._data += message.get("body", b"")
        much = len(self._data) - MOST_BYTES
        if much > 0:
            del self._data[:much]
            self.start += much
        self._tell()

    def _ended(self, task: asyncio.Future[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if not self.begun.done():
            cancelled = ApiError(400, "the stream was cancelled", code="cancelled")
            self.begun.set_exception(error or cancelled)
        self.completed = int(time.time())
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class KeptStreams:
    """Every kept stream of a server, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Kept] = {}

    def answer(self, name: str, stream: Stream) -> ASGIApp:
        """The answer that ``stream`` gives, kept as ``name`` in place of an earlier one."""

        async def answered(scope: Scope, receive: Receive, send: Send) -> None:
            self._make_room(name)
            kept = self._by_name[name] = Kept(stream, scope)
            kept.task.add_done_callback(lambda task: self._ended(name, kept))
            await kept.read(0, send)

        return answered

    def find(self, name: str) -> Kept:
        """The stream of a name. Raises: ApiError 404."""
        found = self._by_name.get(name)
        if found is None:
            raise ApiError(404, f"no stream is kept as {name!r:.200}", "conv_id")
        return found

    def like(self, names: Iterable[str]) -> Iterator[tuple[str, Kept]]:
        """The streams of these names, and of those that begin with one of them and "::"."""
        for wanted in dict.fromkeys(names):
            for name, kept in self._by_name.items():
                if name == wanted or name.startswith(f"{wanted}::"):
                    yield name, kept

    def drop(self, name: str) -> None:
        """End the stream of a name, if there is one, and forget it."""
        kept = self._by_name.pop(name, None)
        if kept is not None:
            kept.cancel()

    def close(self) -> None:
        """End and forget all."""
        for name in list(self._by_name):
            self.drop(name)

    def _ended(self, name: str, kept: Kept) -> None:
        """Forget it: at once what failed to begin, the rest after some time."""
        seconds = 0.0 if kept.begun.exception() else KEPT_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._forget, name, kept)

    def _forget(self, name: str, kept: Kept) -> None:
        if self._by_name.get(name) is kept:
            del self._by_name[name]

    def _make_room(self, name: str) -> None:
        """Raises: ApiError 429 where all places have streams that are being written."""
        if len(name) > LONGEST_NAME:
            raise ApiError(400, f"{HEADER} has more than {LONGEST_NAME} characters", HEADER)
        self.drop(name)
        if len(self._by_name) >= MOST_STREAMS:
            done = [one for one, kept in self._by_name.items() if kept.completed is not None]
            if not done:
                raise ApiError(
                    429, f"{MOST_STREAMS} streams are being kept", HEADER, "queue_full",
                    headers={"Retry-After": "1"},
                )  # fmt: skip
            self.drop(done[0])


async def _nothing() -> Message:
    """What a client sends that cannot leave."""
    await asyncio.Future()
    raise AssertionError


def _seen(begun: asyncio.Future[Message]) -> None:
    """An error that nobody waits for is no error of the event loop's."""
    if not begun.cancelled():
        begun.exception()
