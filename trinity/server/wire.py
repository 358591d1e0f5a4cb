"""Parse HTTP, with limits on what is slow to parse."""

from __future__ import annotations

import h11

# Lines of a request's line and headers.
MOST_LINES = 256
# Chunks of a body: MOST_CHUNKS, plus one for each CHUNK bytes. Parsing a chunk takes 10 us.
MOST_CHUNKS, CHUNK = 4096, 256
# Events of a connection that are parsed before other clients have their turn.
IN_TURN = 128


class Wire(h11.Connection):
    """h11's connection. ``refusal`` is the reason why a request was refused.

    ``held``: more than ``IN_TURN`` events have arrived; the rest is parsed in a later turn.
    """

    refusal: str | None = None
    held = False
    _turn = _chunks = _size = 0

    def begin_turn(self) -> None:
        """Allow further events."""
        self._turn, self.held = 0, False

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event. Raises: h11.RemoteProtocolError."""
        if self._turn >= IN_TURN:
            self.held = True
            return h11.NEED_DATA
        self._turn += 1
        if self.their_state is h11.IDLE:
            self._check_head()
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._size = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_end
            self._size += len(event.data)
            if self._chunks > MOST_CHUNKS + self._size // CHUNK:
                self._refuse(
                    f"The body comes in more than {MOST_CHUNKS} chunks of less than {CHUNK} bytes."
                )
        return event

    def _check_head(self) -> None:
        data, _ = self.trailing_data
        ends = [end for end in (data.find(b"\n\r\n"), data.find(b"\n\n")) if end >= 0]
        if data.count(b"\n", 0, min(ends, default=len(data))) > MOST_LINES:
            self._refuse(f"The head of the request has more than {MOST_LINES} lines.")

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        raise h11.RemoteProtocolError(reason)
