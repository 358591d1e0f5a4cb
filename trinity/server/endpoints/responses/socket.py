"""The Responses API over a WebSocket: each ``response.create`` is answered as by POST.

A message is one event. ``response.cancel`` ends a response, whose last event follows. Requests of
the same ``stream_id`` (or none) are answered in order, those of several at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.types import Message, Receive, Scope, Send

from trinity.server.caller import OWNER, caller_of
from trinity.server.endpoint import ASGI, Call, Endpoint
from trinity.server.endpoints.responses.create import Context, asked, events, writer_of
from trinity.server.endpoints.responses.request import ResponsesRequest
from trinity.server.endpoints.responses.writer import ResponseWriter
from trinity.server.endpoints.tools import Toolbox
from trinity.server.errors import ApiError, ErrorFamily
from trinity.server.kept_responses import ConnectionResponses
from trinity.server.schemas import decoder, encode
from trinity.server.security import REQUEST_ID
from trinity.server.service import Answers, Service
from trinity.server.stream import Stream
from trinity.server.threads import SMALL
from trinity.server.transport.bodies import LeftError
from trinity.server.transport.connection import CONNECTION, CROWDED, Connection

log = logging.getLogger("trinity.server")
# LiveKit's client asks for the address that it is given, which is OpenAI's up to /v1.
PATHS = ("/v1/responses", "/responses", "/v1")
CREATE, CANCEL = "response.create", "response.cancel"
MOST_LANES = 8  # values of ``stream_id`` at the same time
MOST_REQUESTS = 32  # of a connection that run or wait
# Codes of RFC 6455: the server failed, or ends.
FAILED, RESTARTS = 1011, 1012


class SocketRequest(ResponsesRequest):
    """A ``response.create``: the body of POST /v1/responses, always streamed.

    ``generate`` false evaluates the prompt only: the response has no output, and the next request
    may follow it.
    """

    type: str = CREATE
    stream_id: str | None = None
    generate: bool | None = None


class Envelope(msgspec.Struct):
    """The fields of a message that name its type, and its lane or response."""

    type: str = ""
    stream_id: str | None = None
    response_id: str | None = None  # of the response to cancel


class Exchange:
    """One request of a WebSocket and its response, once it has begun."""

    SCOPE: Final = "trinity.exchange"
    """In the scope of the request: this object."""

    def __init__(self, lane: str | None, size: int) -> None:
        self.lane = lane
        self.size = size  # bytes of the request
        self.writer: ResponseWriter | None = None
        self.is_cancelled = False  # by the client, which waits for the response's last event
        self.is_sending = False  # an event; a writer has written what it says

    def begin(self, body: SocketRequest, box: Toolbox, answers: Answers) -> ResponseWriter:
        """Make the writer of the response."""
        self.writer = writer_of(body, box, answers, is_empty=body.generate is False)
        return self.writer

    @property
    def name(self) -> str | None:
        """The id of the response."""
        return None if self.writer is None else self.writer.response.id


class SocketErrorBody(msgspec.Struct):
    """What is wrong with a request; ``headers`` are those of the HTTP response."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] | UnsetType = UNSET


class SocketError(msgspec.Struct, tag_field="type", tag="error"):
    """The event of an error; ``status`` is that of the HTTP response."""

    error: SocketErrorBody
    status: int


def socket_error(error: ApiError) -> SocketError:
    """The event of an error."""
    headers = dict(error.headers) or UNSET
    body = SocketErrorBody(
        error.message, error.kind or error.type, error.param, error.code, headers
    )
    return SocketError(body, error.status)


SOCKET = ErrorFamily("OpenAI's WebSocket", socket_error, SocketError, event=lambda body: body)


async def respond(call: Call[SocketRequest]) -> ASGI:
    """Respond to a ``response.create``; each part of the response's body is one event."""
    body, context = call.body, await Context.of(call)
    body.stream = True
    box, job = await call.run(asked, call.ignored, body, context)
    if body.generate is False:
        job = replace(job, options={**job.options, "max_tokens": 0})
    start = partial(call.start, body.model, job)
    exchange: Exchange = call.request.scope[Exchange.SCOPE]
    written = partial(events, partial(exchange.begin, body, box), context, encode)
    return Stream(start, written, family=SOCKET, media_type="application/json", beat=b"")


ENDPOINT = Endpoint(
    "POST", PATHS[0], respond, "Answer a message of a WebSocket.",
    body=SocketRequest, family=SOCKET, generates=True,
)  # fmt: skip


class ResponsesSocket:
    """The ASGI application of a WebSocket. ``answer`` serves a message as a request."""

    def __init__(self, answer: ASGI, service: Service) -> None:
        self._answer = answer
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the messages of one client until it leaves or the server ends."""
        connection: Connection | None = scope.get("state", {}).get(CONNECTION)
        await receive()  # websocket.connect
        if scope.get(CROWDED, False):
            await send({"type": "websocket.close", "code": 1013})
            return
        await send({"type": "websocket.accept"})
        session = Session(self._answer, self._service, scope, send, connection)
        ending = set[Callable[[], None]]() if connection is None else connection.server_state.ending
        ending.add(session.stop)
        try:
            with suppress(LeftError):
                await session.run(receive)
        finally:
            ending.discard(session.stop)
            await session.close()


class Session:
    """The requests of one WebSocket that run or wait."""

    def __init__(
        self, answer: ASGI, service: Service, scope: Scope, send: Send,
        connection: Connection | None,
    ) -> None:  # fmt: skip
        self._answer = answer
        self._service = service
        self._send = send
        self._connection = connection
        self._caller = caller_of(scope)
        self._most_bytes = service.settings.max_body
        if service.models.reads_images:
            self._most_bytes = max(self._most_bytes, service.settings.max_audio)
        self._responses = ConnectionResponses(service.owned[self._caller.owner].responses)
        names = ("asgi", "path", "raw_path", "root_path", "server", "client", "http_version", OWNER)
        self._scope = {
            **{name: scope[name] for name in names if name in scope},
            "type": "http", "method": "POST", "scheme": "http", "query_string": b"", "state": {},
            "headers": [(b"content-type", b"application/json")],
            ConnectionResponses.SCOPE: self._responses,
        }  # fmt: skip
        self._last = dict[str | None, asyncio.Task[None]]()  # of each lane
        self._tasks = dict[asyncio.Task[None], Exchange]()
        self._is_stopping = False

    async def run(self, receive: Receive) -> None:
        """Take messages until the client leaves."""
        while (message := await receive())["type"] != "websocket.disconnect":
            text = message.get("text")
            await self._take(message["bytes"] if text is None else text.encode())

    def stop(self) -> None:
        """Accept no more requests, and end the connection after the last response."""
        self._is_stopping = True
        if not self._tasks:
            self._ending = asyncio.create_task(self._end(RESTARTS))

    async def close(self) -> None:
        """Cancel all running responses: the client has left, or the server ends."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._responses.close()

    async def _take(self, data: bytes) -> None:
        envelope = await self._envelope(data)
        lane = envelope.stream_id
        try:
            self._check(envelope, len(data))
        except ApiError as error:
            await self._tell(lane, encode(socket_error(error)))
            return
        if envelope.type == CANCEL:
            self._cancel(envelope)
            return
        exchange = Exchange(lane, len(data))
        task = asyncio.create_task(self._respond(exchange, [data], self._last.get(lane)))
        self._last[lane] = task
        self._tasks[task] = exchange
        task.add_done_callback(partial(self._done, lane))
        if self._connection is not None:
            self._connection.is_busy = True

    async def _envelope(self, data: bytes) -> Envelope:
        """Return a message's envelope. A malformed message counts as a request, which fails."""
        try:
            if len(data) <= SMALL:
                envelope: Envelope = decoder(Envelope).decode(data)
            else:
                threads = self._service.threads
                envelope = await threads.run(self._caller, decoder(Envelope).decode, data)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return Envelope(CREATE)  # the error is found when it is read as a request
        return envelope

    def _check(self, envelope: Envelope, size: int) -> None:
        """Raises: ApiError for a message that is not a request, or is one too many."""
        if envelope.type == CANCEL:
            return
        if envelope.type != CREATE:
            raise ApiError(
                400, f"{envelope.type!r:.100} is not supported; send {CREATE!r} or {CANCEL!r}",
                "type", "unsupported_event",
            )  # fmt: skip
        if self._is_stopping:
            raise ApiError(503, "the server is stopping")
        told = None
        if len(self._tasks) >= MOST_REQUESTS:
            told = f"{MOST_REQUESTS} requests of this connection run or wait"
        elif self._tasks and self._waiting_bytes + size > self._most_bytes:
            told = f"the requests of this connection have more than {self._most_bytes} bytes"
        elif envelope.stream_id not in self._last and len(self._last) >= MOST_LANES:
            told = f"this connection uses {MOST_LANES} values of stream_id at the same time"
        if told is not None:
            raise ApiError(429, told, code="too_many_requests", headers={"Retry-After": "1"})

    @property
    def _waiting_bytes(self) -> int:
        return sum(exchange.size for exchange in self._tasks.values())

    def _cancel(self, envelope: Envelope) -> None:
        """Cancel the response with this id, or all responses of a lane, if any is running."""
        for task, exchange in self._tasks.items():
            wanted = envelope.response_id
            meant = exchange.lane == envelope.stream_id if wanted is None else True
            if exchange.name is not None and meant and wanted in (None, exchange.name):
                exchange.is_cancelled = True
                if not exchange.is_sending:
                    task.cancel()

    async def _respond(
        self, exchange: Exchange, body: list[bytes], before: asyncio.Task[None] | None
    ) -> None:
        """Answer a request once the one before it in its lane is answered."""
        lane = exchange.lane
        if before is not None:
            await asyncio.wait([before])
            del before
        REQUEST_ID.set(f"req_{secrets.token_hex(16)}")

        async def receive() -> Message:
            if body:
                return {"type": "http.request", "body": body.pop(), "more_body": False}
            await asyncio.Future()  # it is cancelled when the client leaves
            raise AssertionError

        async def send(message: Message) -> None:
            if message.get("body"):
                exchange.is_sending = True
                await self._tell(lane, message["body"])
                exchange.is_sending = False
                if exchange.is_cancelled:
                    raise asyncio.CancelledError

        try:
            await self._answer({**self._scope, Exchange.SCOPE: exchange}, receive, send)
        except asyncio.CancelledError:
            if not exchange.is_cancelled or exchange.writer is None:
                raise
            with suppress(LeftError):
                for event in exchange.writer.cancel():
                    await self._tell(lane, encode(event))
        except Exception as error:
            log.error("a request of a WebSocket failed", exc_info=error)
            await self._end(FAILED)

    async def _tell(self, lane: str | None, event: bytes) -> None:
        if lane is not None:
            event = b'{"stream_id":%b,%b' % (encode(lane), event[1:])
        try:
            await self._send({"type": "websocket.send", "text": event.decode()})
        except Exception:  # of another server than this package's
            raise LeftError from None

    def _done(self, lane: str | None, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if self._last.get(lane) is task:
            del self._last[lane]
        if self._tasks:
            return
        if self._connection is not None:
            self._connection.is_busy = False
        if self._is_stopping:
            self._ending = asyncio.create_task(self._end(RESTARTS))

    async def _end(self, code: int) -> None:
        with suppress(Exception):  # other servers raise one after the end
            await self._send({"type": "websocket.close", "code": code})
