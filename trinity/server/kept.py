"""Streams that go on without their client, kept under the name that it gave, to be read again.

A request with the header X-Conversation-Id has such a stream, as in llama.cpp's server. Its bytes
are kept while it is written and for some minutes after; every reader, the first one too, gets them
from there, so none holds it up. Its events are numbered, so that a reader can say by Last-Event-ID
which was the last that it has. With a folder for their tokens, streams outlive the process.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trinity.conversation.names import name_again
from trinity.server.errors import ApiError
from trinity.server.stream import EVENTS, Stream
from trinity.server.stream_log import Recording, StreamLog, StreamLogs, recording

HEADER, LAST_EVENT = "x-conversation-id", "last-event-id"
LONGEST_NAME = 512
MOST_STREAMS = 64
MOST_BYTES = 4 << 20  # of one stream; of a longer one the beginning is dropped
KEPT_SECONDS = 300.0
LATE = ApiError(408, "the reader was too slow: a part of the stream is gone")


@dataclass(frozen=True, slots=True)
class Source:
    """What writes a stream: the application, its scope, and how it says what is wrong."""

    app: ASGIApp
    scope: Scope
    failure: Callable[[Exception], bytes]


class Kept:
    """One stream: ``start`` and ``end`` are the places of what is there of it, in bytes.

    ``begun`` is done once its headers are known, with the error where it cannot begin.
    ``started`` and ``completed`` are times in seconds since the epoch; it is written until
    ``completed`` is known. ``left`` is called when nobody reads it any more.
    """

    def __init__(
        self, source: Source, recorded: Recording, left: Callable[[], object] = lambda: None
    ) -> None:
        self.started = int(time.time())
        self.completed: int | None = None
        self.start = 0
        self.readers = 0
        self.recorded = recorded
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[Message] = loop.create_future()
        self.begun.add_done_callback(_seen)
        self._failure = source.failure
        self._left = left
        self._data = bytearray()
        self._ends = array("Q")  # of the numbered events, in bytes of the stream
        self._numbers = False
        self._changed = asyncio.Event()
        context = copy_context()
        context.run(recording.set, recorded)
        context.run(name_again, recorded.names)
        writing = _run(source.app, source.scope, self._take)
        self.task = loop.create_task(writing, context=context)
        self.task.add_done_callback(self._ended)

    @property
    def end(self) -> int:
        """Bytes that were written."""
        return self.start + len(self._data)

    @property
    def events(self) -> int:
        """Events that were written and have numbers, from 1."""
        return len(self._ends)

    def cancel(self) -> None:
        """End it; again is harmless."""
        self.task.cancel()

    async def read(self, place: int, send: Send, *, after: int | None = None) -> None:
        """Send what is there from ``place`` on, and what comes.

        ``after``: from behind the event of that number instead; the answer is 204 where none
        comes behind it. Raises: as ``begun``; ApiError where there is no such event.
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
                while after > self.events and self.completed is None:
                    await self._changed.wait()
                self._check(after)
                place = self._ends[after - 1] if after else 0
            await self._send(place, send)
        finally:
            self.readers -= 1
            if not self.readers and self.completed is None:
                self._left()

    async def _send(self, place: int, send: Send) -> None:
        while True:
            changed = self._changed
            late = place < self.start
            piece = self._failure(LATE) if late else bytes(self._data[place - self.start :])
            if piece:
                place += len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
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
        self.recorded.end()
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class KeptStreams:
    """Every kept stream of a server, by name; ``logs``: the folder with those of processes before.

    ``repeat`` makes what writes such a stream once more.
    """

    def __init__(self, logs: StreamLogs | None = None) -> None:
        self.logs = logs
        self.repeat: Callable[[StreamLog], Source] | None = None
        self._by_name: dict[str, Kept] = {}

    def answer(self, name: str, stream: Stream, path: str = "", body: bytes = b"") -> ASGIApp:
        """The answer that ``stream`` gives, kept as ``name`` in place of an earlier one.

        ``path`` and ``body`` are those of the request.
        """

        async def answered(scope: Scope, receive: Receive, send: Send) -> None:
            self._make_room(name)
            recorded = Recording(self.logs, name, path, body, secrets.randbits(64))
            kept = self._keep(name, Source(stream, scope, stream.failure), recorded)
            await kept.read(0, send)

        return answered

    def find(self, name: str) -> Kept:
        """The stream of a name, which goes on if a process before began it.

        Raises: ApiError 404.
        """
        found = self._by_name.get(name) or self._repeated(name)
        if found is None:
            raise ApiError(404, f"no stream is kept as {name!r:.200}", "conv_id")
        return found

    def resume(self, name: str, last: str) -> ASGIApp:
        """What follows the event with the number ``last`` of a stream. Raises: ApiError."""
        if not (last.isascii() and last.isdigit() and len(last) <= 18):
            raise ApiError(400, f"Last-Event-ID is {last!r:.40}; it is a number", LAST_EVENT)
        kept = self.find(name)

        async def read(scope: Scope, receive: Receive, send: Send) -> None:
            await kept.read(0, send, after=int(last))

        return read

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
        if self.logs is not None:
            self.logs.remove(name)

    def close(self) -> None:
        """End all; those with a file can go on in another process."""
        kept, self._by_name = self._by_name, {}
        for one in kept.values():
            one.cancel()

    def _repeated(self, name: str) -> Kept | None:
        """A stream that a process before began."""
        if self.logs is None or self.repeat is None:
            return None
        log = self.logs.open(name)
        if log is None:
            return None
        try:
            self._check_room()
            source = self.repeat(log)
        except BaseException:
            log.close()
            raise
        return self._keep(name, source, Recording.again(self.logs, log))

    def _keep(self, name: str, source: Source, recorded: Recording) -> Kept:
        loop = asyncio.get_running_loop()

        def left() -> None:
            loop.call_later(KEPT_SECONDS, self._abandon, name, kept)

        kept = self._by_name[name] = Kept(source, recorded, left)
        kept.task.add_done_callback(lambda task: self._ended(name, kept))
        return kept

    def _abandon(self, name: str, kept: Kept) -> None:
        """End a stream that nobody reads; what it has a file of can go on if somebody asks."""
        if not kept.readers and kept.completed is None and self._by_name.get(name) is kept:
            del self._by_name[name]
            kept.cancel()

    def _ended(self, name: str, kept: Kept) -> None:
        """Forget it: at once what failed to begin, the rest after some time."""
        seconds = 0.0 if kept.begun.exception() else KEPT_SECONDS
        asyncio.get_running_loop().call_later(seconds, self._forget, name, kept)

    def _forget(self, name: str, kept: Kept) -> None:
        if self._by_name.get(name) is kept:
            self.drop(name)

    def _make_room(self, name: str) -> None:
        """Raises: ApiError 429 where all places have streams that are being written."""
        if len(name) > LONGEST_NAME:
            raise ApiError(400, f"{HEADER} has more than {LONGEST_NAME} characters", HEADER)
        self.drop(name)
        self._check_room()

    def _check_room(self) -> None:
        if len(self._by_name) >= MOST_STREAMS:
            done = [one for one, kept in self._by_name.items() if kept.completed is not None]
            if not done:
                raise ApiError(
                    429, f"{MOST_STREAMS} streams are being kept", HEADER, "queue_full",
                    headers={"Retry-After": "1"},
                )  # fmt: skip
            self.drop(done[0])


async def _run(app: ASGIApp, scope: Scope, send: Send) -> None:
    await app(scope, _nothing, send)


async def _nothing() -> Message:
    """What a client sends that cannot leave."""
    await asyncio.Future()
    raise AssertionError


def _seen(begun: asyncio.Future[Message]) -> None:
    """An error that nobody waits for is no error of the event loop's."""
    if not begun.cancelled():
        begun.exception()
