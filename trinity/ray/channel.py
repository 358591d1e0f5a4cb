"""Connections by which replicas send the chunks of responses to an ingress, one for each pair.

A result that passes through Ray costs up to a millisecond of CPU time, as much as a token of a
small model. Therefore Ray carries only the request and the end of the call. A connection carries
the chunks: those of one step of all responses are one message.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import socket
import ssl
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from trinity.ray.frames import Frames, Numbered, frame
from trinity.runtime.generation import Chunk
from trinity.runtime.scheduling.inbox import AsyncInbox, Deliveries

SECRET_BYTES = 32


class LostConnectionError(Exception):
    """The connection between a replica and an ingress has ended, or cannot be made."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an ingress listens. A connection must begin with the secret."""

    host: str
    port: int
    secret: bytes


class Receiver(Protocol):
    """Receives the chunks of one response."""

    def take(self, chunk: Chunk) -> None:
        """Receive a chunk."""

    def lost(self) -> None:
        """Note that the connection has ended: no more chunks will arrive."""


class Listener:
    """The ingress's end: the responses that are running, by the number that their chunks have."""

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family)
        self.address = Address(
            host, self._socket.getsockname()[1], secrets.token_bytes(SECRET_BYTES)
        )
        self.receivers: dict[int, Receiver] = {}
        self.connections = set[Incoming]()
        self._numbers = count()
        self._server: asyncio.Server | None = None

    @classmethod
    async def opened(cls, host: str) -> Listener:
        """Accept connections in the running event loop."""
        made = cls(host)
        made._server = await asyncio.get_running_loop().create_server(
            lambda: Incoming(made), sock=made._socket, ssl=encryption(ssl.Purpose.CLIENT_AUTH)
        )
        return made

    def add(self, receiver: Receiver) -> int:
        """Return the number of a response, which no other one gets."""
        number = next(self._numbers)
        self.receivers[number] = receiver
        return number

    def remove(self, number: int) -> None:
        """Drop what still comes of a response."""
        self.receivers.pop(number, None)

    def close(self) -> None:
        """Accept no more connections, and end those that are open."""
        if self._server is None:
            self._socket.close()
        else:
            self._server.close()
        for connection in self.connections:
            connection.transport.abort()


class Incoming(asyncio.Protocol):
    """A connection that a replica has made."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._before = bytearray()  # bytes of the secret
        self._is_known = False
        self._frames = Frames()
        self._numbers = set[int]()  # of the responses that it carries

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport: asyncio.Transport = transport
        self._listener.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Check the secret; pass chunks to the receivers of their responses."""
        if not self._is_known:
            self._before += data
            if len(self._before) < SECRET_BYTES:
                return
            secret, data = bytes(self._before[:SECRET_BYTES]), bytes(self._before[SECRET_BYTES:])
            if not hmac.compare_digest(secret, self._listener.address.secret):
                self.transport.abort()
                return
            self._is_known = True
        try:
            chunks = self._frames.read(data)
        except ValueError:
            self.transport.abort()
            return
        receivers = self._listener.receivers
        with Deliveries.together():
            for number, chunk in chunks:
                receiver = receivers.get(number)
                if receiver is None:
                    continue
                self._numbers.add(number)
                receiver.take(chunk)
                if chunk.finish_reason is not None:
                    self._numbers.discard(number)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the receivers of the responses that have not ended."""
        self._listener.connections.discard(self)
        for number in self._numbers:
            receiver = self._listener.receivers.get(number)
            if receiver is not None:
                receiver.lost()


class Outgoing(asyncio.Protocol):
    """A replica's connection to an ingress. What is sent in one turn of the loop is one message."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._loop = asyncio.get_running_loop()
        self._chunks: list[Numbered] = []
        self._timer: asyncio.Handle | None = None
        self._delay = 0.0
        self.responses = set[Sent]()
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        """Send the secret."""
        self._transport: asyncio.Transport = transport
        transport.write(self._secret)

    def connection_lost(self, error: Exception | None) -> None:
        """End the responses with an error."""
        self.lost = True
        for response in self.responses:
            response.fail(LostConnectionError("the ingress has closed the connection"))

    def close(self) -> None:
        """End the connection."""
        self._transport.abort()

    def send(self, number: int, chunk: Chunk, delay: float) -> None:
        """Send a chunk within ``delay`` seconds, together with others."""
        self._chunks.append((number, chunk))
        if self._timer is not None:
            if delay >= self._delay:
                return
            self._timer.cancel()
        self._delay = delay
        if delay:
            self._timer = self._loop.call_later(delay, self._flush)
        else:
            self._timer = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        chunks, self._chunks, self._timer = self._chunks, [], None
        if not self._transport.is_closing():
            self._transport.write(frame(chunks))


class Sent(AsyncInbox):
    """The chunks of one response, which go to an ingress.

    ``delay``: seconds that a chunk may wait for others, unless it is the last one.
    """

    def __init__(self, connection: Outgoing, number: int, delay: float) -> None:
        super().__init__()
        self._connection, self._number, self._delay = connection, number, delay
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, item: Any) -> None:
        """Receive a number and a chunk, or an exception, from any thread."""
        self._deliveries.put(self._take, item)

    def _take(self, item: Any) -> None:
        if isinstance(item, BaseException):
            self.fail(item)
            return
        chunk: Chunk = item[1]
        last = chunk.finish_reason is not None
        self._connection.send(self._number, chunk, 0 if last else self._delay)
        if last and not self._ended.done():
            self._ended.set_result(None)

    def fail(self, error: BaseException) -> None:
        """End the response with an error."""
        if not self._ended.done():
            self._ended.set_exception(error)

    async def ended(self) -> None:
        """Wait for the last chunk. Raises: the response's error; LostConnectionError."""
        self._connection.responses.add(self)
        try:
            if self._connection.lost:
                raise LostConnectionError("the ingress has closed the connection")
            await self._ended
        finally:
            self._connection.responses.discard(self)


class IngressConnections:
    """A replica's connections, made when they are needed."""

    def __init__(self) -> None:
        self._open: dict[Address, asyncio.Task[Outgoing]] = {}

    async def to(self, address: Address) -> Outgoing:
        """Return the connection to an ingress. Raises: LostConnectionError."""
        made = self._open.get(address)
        if made is None or is_lost(made):
            self._open = {key: one for key, one in self._open.items() if not is_lost(one)}
            made = self._open[address] = asyncio.create_task(self._made(address))
        try:
            return await asyncio.shield(made)
        except OSError as error:
            raise LostConnectionError(
                f"a replica cannot connect to the ingress at {address.host}:{address.port}: {error}"
            ) from None

    def close(self) -> None:
        """End all connections."""
        for made in self._open.values():
            if made.done() and made.exception() is None:
                made.result().close()

    async def _made(self, address: Address) -> Outgoing:
        _, protocol = await asyncio.get_running_loop().create_connection(
            lambda: Outgoing(address.secret), address.host, address.port,
            ssl=encryption(ssl.Purpose.SERVER_AUTH),
            server_hostname="" if encryption_is_wanted() else None,
        )  # fmt: skip
        return protocol


def is_lost(made: asyncio.Task[Outgoing]) -> bool:
    """Whether a connection has ended, or could not be made."""
    return made.done() and (made.exception() is not None or made.result().lost)


def encryption_is_wanted() -> bool:
    """Whether Ray encrypts its connections, with certificates on both sides."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")


def encryption(purpose: ssl.Purpose) -> ssl.SSLContext | None:
    """Return the context of connections, by Ray's certificates; None if Ray encrypts nothing."""
    if not encryption_is_wanted():
        return None
    names = ("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY")
    authority, certificate, key = (os.environ.get(name) for name in names)
    context = ssl.create_default_context(purpose, cafile=authority)
    context.load_cert_chain(certificate or "", key)
    context.check_hostname = False  # as in Ray: addresses change
    context.verify_mode = ssl.CERT_REQUIRED
    return context
