"""Streamed responses: server-sent events, or lines of JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, TypeVar

from starlette.types import Receive, Scope, Send

from trinity.server.errors import OPENAI, ErrorFamily, api_error
from trinity.server.schemas import encode

# Seconds until the head is sent; an error before that sets the status.
PATIENCE = 10.0
# Seconds of silence before a keep-alive: proxies time out after 30 to 60 seconds.
BEAT = 10.0
BEAT_COMMENT = b": keep-alive\n\n"
# Marks an ASGI message that contains whole events only.
EVENTS = "trinity.events"
# Marks an ASGI message that the next one follows at once: both are written together.
MORE = "trinity.more"
# Messages in a row that are marked so, before other tasks have their turn.
MOST_MORE = 64
# In a request's scope: the time of the event loop at which the request must be complete.
DEADLINE = "trinity.deadline"
# Estimated milliseconds from the head of the response to its first token.
PREDICTED = b"x-predicted-first-token-ms"
DONE = b"data: [DONE]\n\n"


def data(encoded: bytes) -> bytes:
    """Format an event without a name."""
    return b"data: %b\n\n" % encoded


def event(name: str, encoded: bytes) -> bytes:
    """Format an event with a name."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encoded)


class Started(Protocol):
    """A response in progress."""

    @property
    def predicted(self) -> float | None:
        """Estimated seconds until the first token, or None."""

    @property
    def has_next(self) -> bool:
        """Whether its next event is here."""

    def close(self) -> None:
        """End it. Calling it again has no effect."""


A = TypeVar("A", bound=Started)


class Stream:
    """Starts streamed responses, sends the output of ``written``, and closes them at the end.

    ``start`` is called when the response begins, for example ``Service.start``. An error within
    ``PATIENCE`` seconds sets the status; a later one is the stream's last event, in the family's
    format. ``beat`` keeps a silent connection alive. An empty output of ``written`` sends what
    waits to be sent with the next one.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[A]],
        written: Callable[[A], AsyncGenerator[bytes, None]],
        *,
        family: ErrorFamily = OPENAI,
        media_type: str = "text/event-stream",
        beat: bytes = BEAT_COMMENT,
    ) -> None:
        self._start: Callable[[], Awaitable[Any]] = start
        self._written: Callable[[Any], AsyncGenerator[bytes, None]] = written
        # Makes the last event of a stream that fails; it does not refer to the request.
        self.failure = partial(failure, family)
        self._media_type = media_type
        self._beat = beat
        self._silent = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the whole response."""
        starting = asyncio.ensure_future(self._start())
        beating: asyncio.Task[None] | None = None
        try:
            await asyncio.wait([starting], timeout=PATIENCE)
            headers = self._headers()
            if starting.done() and (seconds := starting.result().predicted) is not None:
                headers.append((PREDICTED, b"%d" % round(1000 * seconds)))
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            beating = asyncio.create_task(self._keep_alive(send))
            try:
                async with asyncio.timeout_at(scope[DEADLINE]):
                    answers = await starting
                    await self._send_events(answers, send)
            except Exception as error:
                await _closed(starting)
                async with asyncio.timeout(BEAT):  # a client may have stopped reading
                    await send(_body(self.failure(error)))
            beating.cancel()
            await send({"type": "http.response.body", "body": b""})
        finally:
            if beating is not None:
                beating.cancel()
            await _closed(starting)

    async def _send_events(self, answers: Started, send: Send) -> None:
        """Send the events of a response, those that are here together."""
        more = 0
        async with aclosing(self._written(answers)) as events:
            async for encoded in events:
                self._silent = False
                message = {**_body(encoded), EVENTS: True}
                more = more + 1 if encoded and answers.has_next and more < MOST_MORE else 0
                if more:
                    message[MORE] = True
                await send(message)

    async def _keep_alive(self, send: Send) -> None:
        while True:
            self._silent = True
            await asyncio.sleep(BEAT)
            if self._silent:
                await send(_body(self._beat))

    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [
            (b"content-type", f"{self._media_type}; charset=utf-8".encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]


def failure(family: ErrorFamily, error: Exception) -> bytes:
    """Format an error as the last event of a stream."""
    return family.event(encode(family.form(api_error(error))))


def _body(chunk: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": chunk, "more_body": True}


async def _closed(starting: asyncio.Future[Any]) -> None:
    """End a response that has no reader."""
    if not starting.done():
        starting.cancel()
    elif not starting.cancelled() and starting.exception() is None:
        starting.result().close()
