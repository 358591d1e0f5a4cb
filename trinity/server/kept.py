"""Kept streams: they continue without their client and can be read again under a name.

A request with the header X-Conversation-Id has such a stream, as in llama.cpp's server. The server
keeps its bytes in memory while it is written and for some minutes after. Every reader, including
the first, reads from there, so a slow reader does not delay the stream. Events are numbered, and a
reader sends the number of its last event as Last-Event-ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from starlette.types import ASGIApp, Receive, Scope, Send

from trinity.server.caller import part_of
from trinity.server.errors import ApiError
from trinity.server.kept_stream import LAST_EVENT, Kept
from trinity.server.stream import Stream

HEADER = "x-conversation-id"
LONGEST_NAME = 512
MOST_STREAMS = 64  # of all owners together
LEAST_STREAMS = 4  # of each owner
# Bytes of all streams' events and of the requests whose streams are being written.
MOST_BYTES = 32 << 20
LEAST_BYTES = 8 << 20  # of each owner
KEPT_SECONDS = 300.0


def name_in(header: str) -> str:
    """The name in a header's value: UTF-8, as in queries, or Latin-1, as browsers send it."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeDecodeError:
        return header


class KeptStreams:
    """The kept streams of one owner, who has an equal part of the limits of ``owners`` owners."""

    def __init__(self, owners: int = 1) -> None:
        self.most = part_of(MOST_STREAMS, owners, LEAST_STREAMS)
        self.most_bytes = part_of(MOST_BYTES, owners, LEAST_BYTES)
        self._by_name: dict[str, Kept] = {}

    def answer(self, name: str, stream: Stream, path: str = "", request_bytes: int = 0) -> ASGIApp:
        """The response of ``stream``, kept as ``name`` in place of an earlier one.

        ``path`` and ``request_bytes``, those of its body, are of the request.
        """

        async def answered(scope: Scope, receive: Receive, send: Send) -> None:
            self._make_room(name, request_bytes)
            kept = Kept(name, path, self._left, self._make_room_for)
            self._by_name[name] = kept
            kept.write(stream, scope, request_bytes)
            kept.task.add_done_callback(lambda task: self._ended(kept))
            await kept.read(0, send)

        return answered

    def find(self, name: str) -> Kept:
        """The stream of a name. Raises: ApiError 404."""
        kept = self._by_name.get(name)
        if kept is None:
            raise ApiError(404, f"there is no stream {name!r:.200}", "conv_id")
        return kept

    def resume(self, name: str, last: str, path: str | None = None) -> ASGIApp:
        """A response with the events after number ``last`` of a stream.

        ``path`` is the path of the new request. Raises: ApiError, 409 for another path than the
        stream's.
        """
        if not (last.isascii() and last.isdigit() and len(last) <= 18):
            raise ApiError(400, f"Last-Event-ID is {last!r:.40}; it must be a number", LAST_EVENT)
        kept = self.find(name)
        if path is not None and kept.path != path:
            raise ApiError(409, f"the stream {name!r:.200} was started at {kept.path}", HEADER)

        async def read(scope: Scope, receive: Receive, send: Send) -> None:
            await kept.read(0, send, after=int(last))

        return read

    def like(self, names: Iterable[str]) -> Iterator[tuple[str, Kept]]:
        """The streams with one of ``names``, or with a name that begins with it and "::"."""
        for wanted in dict.fromkeys(names):
            for name, kept in self._by_name.items():
                if name == wanted or name.startswith(f"{wanted}::"):
                    yield name, kept

    def drop(self, name: str) -> None:
        """Cancel and forget the stream of a name, if there is one."""
        kept = self._by_name.pop(name, None)
        if kept is not None:
            kept.cancel()

    def close(self) -> None:
        """Cancel and forget all streams."""
        kept, self._by_name = self._by_name, {}
        for stream in kept.values():
            stream.cancel()

    @property
    def nbytes(self) -> int:
        """Bytes of all streams."""
        return sum(kept.nbytes for kept in self._by_name.values())

    def _has(self, kept: Kept) -> bool:
        return self._by_name.get(kept.name) is kept

    def _left(self, kept: Kept) -> None:
        kept.later(KEPT_SECONDS, self._abandon)

    def _abandon(self, kept: Kept) -> None:
        """End a stream that has no reader."""
        if not kept.readers and kept.completed is None:
            self._forget(kept)

    def _ended(self, kept: Kept) -> None:
        """Forget a stream: at once if it failed to begin, otherwise after some time."""
        if kept.begun.exception():
            self._forget(kept)
        elif self._has(kept):
            kept.later(KEPT_SECONDS, self._forget)

    def _forget(self, kept: Kept) -> None:
        if self._has(kept):
            del self._by_name[kept.name]
            kept.cancel()

    def _make_room(self, name: str, nbytes: int) -> None:
        """Drop a name's old stream, and make room. Raises: ApiError 429; 400 for a long name."""
        if len(name) > LONGEST_NAME:
            raise ApiError(400, f"{HEADER} has more than {LONGEST_NAME} characters", HEADER)
        self.drop(name)
        self._check_room(nbytes)

    def _check_room(self, nbytes: int) -> None:
        """Forget completed streams, oldest first, until one more fits. Raises: ApiError 429."""
        while self._by_name and (
            len(self._by_name) >= self.most or self.nbytes + nbytes > self.most_bytes
        ):
            if not self._forget_oldest():
                raise ApiError(
                    429, f"{len(self._by_name)} streams of {self.nbytes} bytes are running; "
                    f"the limits are {self.most} streams and {self.most_bytes} bytes", HEADER,
                    "queue_full", headers={"Retry-After": "1"},
                )  # fmt: skip

    def _make_room_for(self, kept: Kept) -> None:
        """Keep all streams within their bytes while ``kept`` grows."""
        while self.nbytes > self.most_bytes and self._forget_oldest():
            pass
        if self._has(kept):
            kept.shorten(self.nbytes - self.most_bytes)

    def _forget_oldest(self) -> bool:
        """Forget the oldest completed stream. Returns whether there was one."""
        for kept in self._by_name.values():
            if kept.completed is not None:
                self._forget(kept)
                return True
        return False
