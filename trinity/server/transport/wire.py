"""Parse HTTP, with limits on what is slow to parse."""

from __future__ import annotations

import re
import time

import h11

# Lines of a request's line and headers, and of the trailers after a body in chunks.
MOST_LINES = 256
# Chunks of a body: MOST_CHUNKS, plus one for each CHUNK bytes. Parsing a chunk takes 10 us.
MOST_CHUNKS, CHUNK = 4096, 256
# Processor time of parsing before other clients have their turn, in seconds.
TURN_SECONDS = 0.001
# The end of a chunk, and the head of the last one, which trailers follow.
_LAST_CHUNK = re.compile(rb"(?:\r\n)?0+[ \t]*(?:;[^\n]*)?\r\n")


class Wire(h11.Connection):
    """h11's connection. ``refusal`` is the reason why a request was refused.

    ``held``: parsing has taken ``TURN_SECONDS``; the rest is parsed in a later turn.
    """

    refusal: str | None = None
    held = False
    _began: float | None = None  # when the first event of the turn was wanted
    _chunks = _size = 0
    _at_chunk = False  # the next bytes end a chunk or begin one
    _in_trailers = False  # the last chunk has begun

    def begin_turn(self) -> None:
        """Allow further events."""
        self._began, self.held = None, False

    def forget(self) -> None:
        """Drop the bytes that are not parsed yet: no more events are wanted."""
        self._received.clear()

    def taken(self) -> bytes:
        """Return the bytes that are not parsed yet, and forget them."""
        received = bytes(self._received)
        self.forget()
        return received

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event. Raises: h11.RemoteProtocolError."""
        if self._began is None:
            self._began = time.thread_time()
        elif time.thread_time() - self._began >= TURN_SECONDS:
            self.held = True
            return h11.NEED_DATA
        if self.their_state is h11.IDLE:
            self._check_lines("head")
        elif self._at_chunk and _LAST_CHUNK.match(self._received):
            self._in_trailers = True
        if self._in_trailers:
            self._check_lines("trailer")
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            # h11 raises the error from its own method: error, traceback and frame form a cycle, in
            # which the whole connection would wait for the collector.
            raise error.with_traceback(None) from None
        if isinstance(event, h11.Request):
            self._chunks = self._size = 0
            self._in_trailers = False
            self._at_chunk = any(name == b"transfer-encoding" for name, _ in event.headers)
        elif isinstance(event, h11.EndOfMessage):
            self._at_chunk = self._in_trailers = False
        elif isinstance(event, h11.Data):
            self._at_chunk = event.chunk_end
            self._chunks += event.chunk_end
            self._size += len(event.data)
            if self._chunks > MOST_CHUNKS + self._size // CHUNK:
                self._refuse(
                    f"The body comes in more than {MOST_CHUNKS} chunks of less than {CHUNK} bytes."
                )
        return event

    @property
    def _received(self) -> bytearray:
        """The bytes that are not parsed yet. ``trailing_data`` would copy them."""
        received: bytearray = self._receive_buffer._data
        return received

    def _check_lines(self, part: str) -> None:
        data = self._received
        ends = [end for end in (data.find(b"\n\r\n"), data.find(b"\n\n")) if end >= 0]
        if data.count(b"\n", 0, min(ends, default=len(data))) > MOST_LINES:
            self._refuse(f"The {part} of the request has more than {MOST_LINES} lines.")

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        raise h11.RemoteProtocolError(reason)
