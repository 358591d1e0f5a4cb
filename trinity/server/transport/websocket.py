"""The WebSocket of a connection, as an ASGI application receives and sends its messages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from starlette.types import Message, Scope
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from trinity.server.transport.pace import Pace
from trinity.server.transport.wire import TURN_SECONDS

if TYPE_CHECKING:
    from trinity.server.transport.connection import Connection

log = logging.getLogger("trinity.server")
# Seconds for a client to confirm the end.
CLOSE_SECONDS = 2.0
# Seconds of silence before a ping, because proxies end silent connections. Clients that have
# vanished are noticed by TCP.
PING_SECONDS = 20.0
# Bytes that a client may send before its WebSocket is accepted.
MOST_EARLY = 64 << 10
# Bytes of all incomplete messages of a server together.
MOST_PARTIAL = 128 << 20
# Codes of RFC 6455.
NORMAL, TOO_LARGE, FAILED, RESTARTS, BUSY, LOST = 1000, 1009, 1011, 1012, 1013, 1006


class HandshakeError(Exception):
    """The request does not ask for a WebSocket as RFC 6455 says."""


class WebSocket:
    """A WebSocket. A message of more than ``most`` bytes ends it.

    Raises: HandshakeError for a malformed request.
    """

    def __init__(self, connection: Connection, scope: Scope, most: int) -> None:
        self._connection = connection
        self._most: Final = most
        self._wire = WSConnection(ConnectionType.SERVER)
        try:
            self._wire.initiate_upgrade_connection(scope["headers"], "/")
        except (RemoteProtocolError, UnicodeError) as error:
            raise HandshakeError(str(error)) from None
        self._messages = deque[Message]([{"type": "websocket.connect"}])
        self._came = asyncio.Event()
        self._early = bytearray()
        self._part = bytearray()  # of an incomplete message
        self._arrived = 0  # bytes of messages
        now = time.monotonic()
        self._pace, self._spoke = Pace(now), now
        self._is_open = self._has_ended = False
        self._is_broken = False  # what arrives cannot be parsed any more

    def start(self, scope: Scope, received: bytes) -> None:
        """Run the application; ``received`` followed the request."""
        self._early += received
        connection = self._connection
        asked = [value for name, value in scope["headers"] if name == b"sec-websocket-protocol"]
        names = [name.strip() for value in asked for name in value.decode("latin-1").split(",")]
        socket = {
            **scope, "type": "websocket", "scheme": "ws", "subprotocols": names,
            "extensions": {"websocket.http.response": {}},
        }  # fmt: skip
        del socket["method"]
        task = connection.loop.create_task(self._run(socket))
        task.add_done_callback(connection.tasks.discard)
        connection.tasks.add(task)

    async def _run(self, scope: Scope) -> None:
        code = NORMAL
        try:
            await self._connection.app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            code = RESTARTS  # the server ends
        except Exception as error:
            log.error("a WebSocket failed", exc_info=error)
            code = FAILED
        self._end(code)

    async def receive(self) -> Message:
        """The next message from the client."""
        while not self._messages:
            self._came.clear()
            await self._came.wait()
        message = self._messages.popleft()
        if not self._messages and self._is_open and not self._has_ended:
            self._connection.loop.call_soon(self._parse)
        return message

    async def send(self, message: Message) -> None:
        """Send a message; it has no effect after the end."""
        if self._has_ended:
            return
        kind = message["type"]
        if kind == "websocket.send":
            text = message.get("text")
            if text is None:
                self._write(BytesMessage(data=message["bytes"]))
            else:
                self._write(TextMessage(data=text))
        elif kind == "websocket.accept":
            headers = list(message.get("headers", ()))
            named = message.get("subprotocol")
            self._write(AcceptConnection(extra_headers=headers, subprotocol=named))
            self._is_open = True
            early, self._early = bytes(self._early), bytearray()
            self.received(early)
        elif kind == "websocket.close":
            self._end(message.get("code", NORMAL), message.get("reason") or "")
        elif kind == "websocket.http.response.start":
            headers = [(name.title(), value) for name, value in message["headers"]]
            headers.append((b"Connection", b"close"))
            status = message["status"]
            self._write(RejectConnection(status_code=status, headers=headers, has_body=True))
        else:
            is_whole = not message.get("more_body", False)
            self._write(RejectData(data=message.get("body", b""), body_finished=is_whole))
            if is_whole:
                self._end(NORMAL)

    def received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if not self._is_open:
            self._early += data
            if len(self._early) > MOST_EARLY:
                self._connection.give_up()
            return
        if self._is_broken:
            self._connection.transport.close()
            return
        try:
            self._wire.receive_data(data)
        except LocalProtocolError:  # after the end
            return
        if not self._connection.flow.is_held:
            self._parse()

    def check(self, now: float) -> None:
        """Called every second: end a client that sends a message too slowly; send a ping."""
        if self._part and self._pace.is_late(now, self._arrived):
            self._connection.give_up()
        elif self._is_open and now - max(self._spoke, self._connection.heard) >= PING_SECONDS:
            self._write(Ping())

    def lost(self) -> None:
        """The connection has ended."""
        self._drop_part()
        self._leave(LOST)

    def _parse(self) -> None:
        """Parse received bytes until a message is complete, and for a while only.

        Nothing is received until the application has taken the message, or until the next turn.
        """
        flow, began = self._connection.flow, time.thread_time()
        flow.is_held = False
        if self._connection.transport.is_closing():
            return
        for event in self._wire.events():
            self._take(event)
            waits = bool(self._messages) and not self._has_ended
            if waits or time.thread_time() - began >= TURN_SECONDS:
                flow.pause_reading()
                flow.is_held = True
                if not waits:
                    self._connection.loop.call_soon(self._parse)
                return
        flow.resume_reading()

    def _take(self, event: Event) -> None:
        if isinstance(event, TextMessage | BytesMessage):
            if not self._has_ended:
                self._add(event)
        elif isinstance(event, Ping):
            if self._connection.unread_since is None:
                self._write(event.response())
        elif isinstance(event, CloseConnection):
            if self._wire.state is ConnectionState.OPEN:  # a frame breaks the rules
                self._is_broken = True
                self._end(event.code, event.reason or "")
                return
            if self._wire.state is ConnectionState.REMOTE_CLOSING:
                self._write(event.response())
                self._leave(int(event.code))
            self._connection.transport.close()

    def _add(self, event: TextMessage | BytesMessage) -> None:
        """Add a part of a message; deliver the message if it is complete."""
        is_text = isinstance(event, TextMessage)
        part = event.data.encode() if isinstance(event, TextMessage) else event.data
        if not self._part:
            self._pace.restart(time.monotonic(), self._arrived)
        self._part += part
        self._arrived += len(part)
        state = self._connection.server_state
        state.partial += len(part)
        if len(self._part) > self._most:
            self._end(TOO_LARGE, f"the message has more than {self._most} bytes")
        elif state.partial > MOST_PARTIAL:
            self._end(BUSY, "the server receives too many bytes")
        elif event.message_finished:
            content = self._part.decode() if is_text else bytes(self._part)
            self._drop_part()
            self._deliver({"type": "websocket.receive", "text" if is_text else "bytes": content})

    def _drop_part(self) -> None:
        self._connection.server_state.partial -= len(self._part)
        self._part = bytearray()

    def _deliver(self, message: Message) -> None:
        self._messages.append(message)
        self._came.set()

    def _leave(self, code: int) -> None:
        """Tell the application, once, that there are no more messages."""
        if not self._has_ended:
            self._has_ended = True
            self._deliver({"type": "websocket.disconnect", "code": code})

    def _end(self, code: int, reason: str = "") -> None:
        """End it. A client that has not confirmed it in time is disconnected."""
        if self._has_ended:
            return
        self._drop_part()
        if self._wire.state is ConnectionState.OPEN:
            self._write(CloseConnection(code=code, reason=reason))
            self._connection.loop.call_later(CLOSE_SECONDS, self._connection.transport.close)
        elif self._wire.state is not ConnectionState.CONNECTING:
            self._connection.transport.close()
        else:
            self._write(RejectConnection(status_code=403))
            self._connection.transport.close()
        self._leave(code)
        self._connection.flow.is_held = False
        self._connection.flow.resume_reading()  # its confirmation must arrive

    def _write(self, event: Event) -> None:
        data = self._wire.send(event)
        self._spoke = time.monotonic()
        self._connection.written += len(data)
        self._connection.transport.write(data)
