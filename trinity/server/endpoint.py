"""What an endpoint is: a line of the table from which routes and the OpenAPI document are made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from trinity.server.errors import OPENAI, Family
from trinity.server.schemas import encode
from trinity.server.service import Service

B = TypeVar("B")
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Call(Generic[B]):
    """One request: the decoded body, the service behind it, and what starlette knows of it.

    ``query``: its parameters, where the endpoint has some.
    """

    service: Service
    body: B
    request: Request
    query: Any = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and a path, and the function that answers.

    ``body`` is the Struct of the request's JSON body, if it has one, ``form`` that of a body of
    multipart/form-data, whose size the setting ``limit`` limits. ``answer`` is the type of the
    JSON answer, ``event`` that of the data of a streamed one.
    ``open``: it needs no key. ``done``: its stream ends with OpenAI's "[DONE]".
    ``chosen``: a request may say which fields the answer has.
    ``query``: the Struct of the query's parameters. ``empty``: the answer is 204 without a body.
    ``bodiless``: the body may be missing, which is as an empty object.
    ``family`` gives errors their form. ``generates``: refused with 429 while the queue is full,
    before anything is prepared.
    """

    method: str
    path: str
    handle: Callable[[Call[Any]], Awaitable[ASGI]]
    summary: str
    body: Any = None
    form: Any = None
    limit: Literal["max_audio", "max_file"] = "max_audio"
    answer: Any = None
    event: Any = None
    media_type: str = "application/json"
    stream_type: str = "text/event-stream"
    family: Family = OPENAI
    open: bool = False
    done: bool = False
    chosen: bool = False
    query: Any = None
    empty: bool = False
    bodiless: bool = False
    generates: bool = False


PIECE = 1 << 18  # bytes of a body that are handed to a connection at once


async def send_body(body: bytes, send: Send) -> None:
    """Send a body in pieces, as fast as the client reads."""
    for start in range(0, max(1, len(body)), PIECE):
        if start:
            await asyncio.sleep(0)  # others' turn, where nothing has held this one up
        end = start + PIECE
        part = body[start:end] if len(body) > PIECE else body
        await send({"type": "http.response.body", "body": part, "more_body": end < len(body)})


class Text:
    """An answer of text in UTF-8."""

    __slots__ = ("body", "headers")

    def __init__(self, text: str, media_type: str) -> None:
        self.body = text.encode()
        self.headers = [
            (b"content-type", f"{media_type}; charset=utf-8".encode()),
            (b"content-length", b"%d" % len(self.body)),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send_body(self.body, send)


class Json:
    """An answer of one JSON document: a Struct, or what ``msgspec`` encodes."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, content: Any, status: int = 200, headers: dict[str, str] | None = None):
        self.body = encode(content)
        self.status = status
        self.headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self.body)),
            *(
                (k.lower().encode("latin-1"), v.encode("latin-1"))
                for k, v in (headers or {}).items()
            ),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send_body(self.body, send)
