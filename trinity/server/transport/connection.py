"""HTTP connections that tolerate clients which send slowly, do not read, or disconnect."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from trinity.server.caller import network_of
from trinity.server.stream import EVENTS, MORE
from trinity.server.transport.joined_writes import JoinedWrites
from trinity.server.transport.pace import Pace
from trinity.server.transport.wire import Wire

if TYPE_CHECKING:
    from trinity.server.transport.connections import Connections
    from trinity.server.transport.websocket import WebSocket

# Seconds within which the request line and headers must arrive.
HEADER_SECONDS = 60.0
# Seconds for the rest of a body after the response has been sent.
REST_SECONDS = 30.0
# Bytes of pipelined requests that are kept while a request is answered.
MOST_AHEAD = 64 << 10
# Headers of requests that have a body.
BODY_HEADERS = frozenset((b"content-length", b"transfer-encoding"))
# In a request's scope, under "state": its connection.
CONNECTION = "trinity.connection"
# In a request's scope: there are too many connections, so it gets 503 unless it only reads.
CROWDED = "trinity.crowded"


class _Reading(FlowControl):
    """uvicorn's flow control. While ``is_held``, nothing more is received.

    uvicorn resumes reading whenever the application waits for more of a body.
    """

    is_held = False  # received bytes are parsed later, because others have their turn

    def resume_reading(self) -> None:
        """Receive again, unless it is held."""
        if not self.is_held:
            super().resume_reading()


class Connection(H11Protocol):
    """uvicorn's connection, which also notices clients that disconnect, and ends if they stall.

    uvicorn stops reading as soon as bytes of the next request arrive, so it does not see that the
    client disconnects. It limits only the time between requests, up to the first byte. And it fails
    if the rest of a body is malformed after its request has been answered.
    """

    server_state: Connections
    crowded = False
    flow: _Reading
    socket: WebSocket | None = None  # once the client has asked for one
    is_busy = False  # whether the server works for the messages of its WebSocket
    _heads: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        self.joined = JoinedWrites(transport)
        super().connection_made(self.joined)
        self.flow = _Reading(self.joined)
        self.conn: Wire = Wire(h11.SERVER, self.config.h11_max_incomplete_event_size or MOST_AHEAD)
        now = time.monotonic()
        self.network = network_of({"client": self.client})
        self.written = 0  # bytes of answers
        self.unread_since: float | None = None
        self.heard = self._answered = now  # heard: when bytes arrived last
        self._taken = Pace(now)
        self._ahead = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self.app_state = {**self.app_state, CONNECTION: self}
        self.server_state.total += 1
        self.crowded = self.server_state.is_crowded()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self.heard = time.monotonic()
        if self.socket is not None:
            self.socket.received(data)
            return
        if self.flow.is_held:
            self.conn.receive_data(data)
            return
        if not self._is_answering:
            super().data_received(data)
            return
        self._ahead += len(data)
        if self._ahead > MOST_AHEAD or self.conn.their_state is h11.MUST_CLOSE:
            self.cycle.keep_alive = False  # too much is pipelined; the client must send it again
        else:
            self.conn.receive_data(data)

    def handle_events(self) -> None:
        """Parse some received bytes; keep reading afterwards, so that a disconnect is noticed."""
        if not self.flow.is_held:
            self._parse()

    def _parse(self) -> None:
        self.flow.is_held = False
        if self.transport.is_closing():
            return
        self.conn.begin_turn()
        super().handle_events()
        if self.socket is not None:
            return
        if self.conn.held:
            self.flow.pause_reading()
            self.flow.is_held = True
            self.loop.call_soon(self._parse)
        elif self._is_answering or self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()
        self._watch()

    def _should_upgrade(self) -> bool:
        """Whether a request asks for a WebSocket, and there can be one."""
        if self._get_upgrade() != b"websocket" or self.scope["method"] != "GET":
            return False
        return has_websockets()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Serve a WebSocket from now on, and no more requests."""
        from trinity.server.transport.websocket import HandshakeError, WebSocket

        if any(name in BODY_HEADERS for name, _ in self.headers):
            self.send_400_response("A request for a WebSocket has no body.")
            return
        try:
            scope: Scope = {**self.scope}
            self.socket = WebSocket(self, scope, self.config.ws_max_size)
        except HandshakeError as error:
            self.send_400_response(f"This is not a request for a WebSocket: {error}.")
            return
        self._unwatch()
        self._unset_keepalive_if_required()
        self.cycle = None  # type: ignore[assignment]
        self.socket.start(scope, self.conn.taken())

    def shutdown(self) -> None:
        """Close it if no request is being answered. Applications end their WebSockets."""
        if self.socket is None:
            super().shutdown()

    def eof_received(self) -> None:
        """The client closed its sending direction: it counts as disconnected."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected. Its memory is free at once, without the collector.

        What it sent and was not parsed, and the body that nobody reads any more, may be megabytes.
        """
        self._unwatch()
        self._writable.set()
        super().connection_lost(exc)
        if self.socket is not None:
            self.socket.lost()
        self._unset_keepalive_if_required()
        self.conn.forget()
        if self.cycle is not None:
            self.cycle.body = bytearray()
        # These refer to this connection.
        self.cycle = self.scope = None  # type: ignore[assignment]
        self.app_state = {}

    def on_response_complete(self) -> None:
        """A response is complete; the next request may already be here."""
        self._answered = self.heard = time.monotonic()
        super().on_response_complete()
        if self._ahead:
            self._ahead = len(self.conn.trailing_data[0])

    def send_400_response(self, msg: str) -> None:
        """Refuse malformed HTTP; if a response has begun, close the connection."""
        msg = self.conn.refusal or msg
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.disconnected = True  # the application's response is too late
                self.cycle.message_event.set()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """The client reads slowly: ``writable`` waits, ``send`` does not."""
        self._writable.clear()
        if self.unread_since is None:
            self._unread(time.monotonic())
        self.server_state.check_unread()

    def resume_writing(self) -> None:
        """The client has read nearly all."""
        self._writable.set()

    async def writable(self) -> None:
        """Wait until the client has read nearly all."""
        await self._writable.wait()

    @property
    def unread(self) -> int:
        """Written bytes that the system has not taken."""
        return self.transport.get_write_buffer_size()

    @property
    def waiting_since(self) -> float | None:
        """The time since which it waits for its client; None if the client waits for a response."""
        if self._is_answering or self.is_busy:
            return self.unread_since
        return None if self.flow.read_paused else self.heard

    def check(self, now: float) -> None:
        """End it if its client reads too slowly, or still sends the body of an answered request."""
        unread = self.unread
        if not unread:
            self.unread_since = None
        elif self.unread_since is None:
            self._unread(now)
        elif self._taken.is_late(now, self.written - unread):
            self.give_up()
        if self.socket is not None:
            self.socket.check(now)
        if self._is_resting and now - self._answered > REST_SECONDS:
            self.give_up()

    def give_up(self) -> None:
        """End it now and drop unread bytes, including those in the system's buffer."""
        if self.unread_since is not None:
            with suppress(OSError):
                place = self.transport.get_extra_info("socket")
                place.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _unread(self, now: float) -> None:
        self.unread_since = now
        self._taken.restart(now, self.written - self.unread)

    @property
    def _is_answering(self) -> bool:
        """Whether a request is complete and its response is not."""
        cycle = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete

    @property
    def _is_resting(self) -> bool:
        """Whether a request has been answered and its body is still arriving."""
        cycle = self.cycle
        return cycle is not None and cycle.more_body and cycle.response_complete

    def _watch(self) -> None:
        """Limit the time until the headers are complete; more bytes do not extend it."""
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._heads is None:
            self._heads = self.loop.call_later(HEADER_SECONDS, self.timeout_keep_alive_handler)

    def _unwatch(self) -> None:
        if self._heads is not None:
            self._heads.cancel()
            self._heads = None


@cache
def has_websockets() -> bool:
    """Whether the package that reads and writes frames is installed."""
    return find_spec("wsproto") is not None


def written_to(app: ASGIApp) -> ASGIApp:
    """An application whose responses are written as fast as clients read, with titled headers.

    Events of a stream are always written, so that unread bytes are counted in one place; parts of
    files wait. HTTP/1.1 allows any case in header names, but some clients expect Content-Type. A
    connection that exceeds the limit ends after its response.
    """

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        connection: Connection | None = scope.get("state", {}).get(CONNECTION)
        if connection is not None and connection.crowded:
            if connection.cycle is not None:
                connection.cycle.keep_alive = False
            scope[CROWDED] = True
        if scope["type"] == "websocket":
            await app(scope, receive, send)
            return

        async def written(message: Message) -> None:
            if message["type"] == "http.response.start":
                if connection is not None:
                    await connection.writable()  # of answers before, to requests in one go
                headers = [(name.title(), value) for name, value in message.get("headers", ())]
                message = {**message, "headers": headers}
            elif connection is not None:
                connection.written += len(message.get("body", b""))
                if message.get("more_body", False) and EVENTS not in message:
                    await connection.writable()
            await send(message)
            is_body = message["type"] == "http.response.body"
            if is_body and connection is not None and MORE not in message:
                connection.joined.flush()

        try:
            await app(scope, receive, written)
        except asyncio.CancelledError:  # the server ends before the answer
            if connection is None:
                raise
            if connection.cycle is not None:
                connection.cycle.disconnected = True
            connection.transport.close()

    return answered
