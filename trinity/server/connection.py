"""A connection that bears requests which never come, or come broken, and how headers go out."""

from __future__ import annotations

import asyncio
import socket

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds for the line and the headers of a request, however few bytes come at a time.
HEADER_SECONDS = 60.0


class Connection(H11Protocol):
    """uvicorn's connection, which ends where a request's headers take too long.

    uvicorn itself bounds the time between requests alone, and only until the first byte of one.
    It also fails where the rest of a body is broken whose request has been answered.
    """

    _heads: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come; small pieces of answers shall not wait for its acknowledgements."""
        super().connection_made(transport)
        place = transport.get_extra_info("socket")
        if place is not None and place.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio does so only where the listening socket names its protocol.
            place.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Some bytes have come."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._unwatch()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; where an answer has begun already, close."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _watch(self) -> None:
        """Bound the time until the headers are whole; more bytes do not extend it."""
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._heads is None:
            self._heads = self.loop.call_later(HEADER_SECONDS, self.timeout_keep_alive_handler)

    def _unwatch(self) -> None:
        if self._heads is not None:
            self._heads.cancel()
            self._heads = None


def titled(app: ASGIApp) -> ASGIApp:
    """An application whose headers have names such as Content-Type.

    In HTTP/1.1 any case will do, but there are clients that compare it.
    """

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        async def written(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.title(), value) for name, value in message.get("headers", ())]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, written)

    return answered
