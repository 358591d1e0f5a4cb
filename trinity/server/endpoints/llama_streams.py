"""Kept streams in llama.cpp's form: GET and DELETE /v1/stream, POST /v1/streams/lookup."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.errors import ApiError
from trinity.server.kept import LONGEST_NAME
from trinity.server.kept_stream import LAST_EVENT
from trinity.server.schemas import Body

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]


class StreamPosition(Body):
    """A kept stream, and the byte from which it is read."""

    conv_id: Name
    start: Annotated[int, Meta(ge=0)] = msgspec.field(default=0, name="from")


class WhichStream(Body):
    """A kept stream."""

    conv_id: Name


class Names(Body):
    """Names of streams; each also means those that begin with it and "::"."""

    conversation_ids: Annotated[list[Name], Meta(max_length=1024)]


class KeptStream(msgspec.Struct):
    """A kept stream; times are seconds since the epoch, 0 for an end that has not come."""

    conversation_id: str
    is_done: bool
    total_bytes: int
    started_at: int
    completed_at: int


async def resume(call: Call[None]) -> ASGI:
    """Send a stream, from a byte or after the event in Last-Event-ID, until its end."""
    name, start = call.query.conv_id, call.query.start
    last = call.request.headers.get(LAST_EVENT)
    if last:
        return call.kept.resume(name, last)
    kept = call.kept.find(name)
    if not kept.begun.done():
        raise ApiError(503, "the stream has not started", "conv_id", headers={"Retry-After": "1"})
    if not kept.start <= start <= kept.end:
        raise ApiError(
            400,
            f"from is {start}; bytes {kept.start} to {kept.end} of the stream are available",
            "from",
        )

    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        await kept.read(start, send)

    return read


async def stop(call: Call[None]) -> ASGI:
    """End and delete a stream. An unknown name is not an error."""
    call.kept.drop(call.query.conv_id)
    return Response(status_code=204)


async def lookup(call: Call[Names]) -> ASGI:
    """The kept streams among those that the client names."""
    streams = [
        KeptStream(name, kept.completed is not None, kept.end, kept.started, kept.completed or 0)
        for name, kept in call.kept.like(call.body.conversation_ids)
    ]
    return Json(streams)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET", "/v1/stream", resume, "Read a kept stream again.", query=StreamPosition,
        media_type="text/event-stream",
    ),
    Endpoint(
        "DELETE", "/v1/stream", stop, "End a kept stream and forget it.", query=WhichStream,
        empty=True,
    ),
    Endpoint(
        "POST", "/v1/streams/lookup", lookup, "Which streams are kept.", body=Names,
        answer=list[KeptStream],
    ),
)  # fmt: skip
