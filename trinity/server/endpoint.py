"""What an endpoint is: a line of the table from which routes and the OpenAPI document are made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from trinity.server.caller import Caller
from trinity.server.errors import OPENAI, ErrorFamily
from trinity.server.ignored import Ignored
from trinity.server.job import ChatJob, TextJob
from trinity.server.kept import KeptStreams
from trinity.server.kept_responses import KeptResponses
from trinity.server.schemas import encode
from trinity.server.served import ModelLease
from trinity.server.service import Answers, Service

B = TypeVar("B")
P = ParamSpec("P")
T = TypeVar("T")
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Call(Generic[B]):
    """One request: what a handler gets."""

    service: Service
    caller: Caller
    body: B  # decoded
    request: Request
    ignored: Ignored  # fields of the request that have no effect
    query: Any = None  # decoded parameters, if the endpoint has some

    @property
    def kept(self) -> KeptStreams:
        """The kept streams of the request's owner."""
        return self.service.owned[self.caller.owner].kept

    @property
    def responses(self) -> KeptResponses:
        """The stored responses of the request's owner."""
        return self.service.owned[self.caller.owner].responses

    async def run(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run a function in a thread; as ``Threads.run``."""
        return await self.service.threads.run(self.caller, function, *args, **named)

    async def start(self, name: str | None, job: ChatJob | TextJob) -> Answers:
        """Start to generate; as ``Service.start``."""
        return await self.service.start(self.ignored, self.caller, name, job)

    def unload(self, name: str) -> None:
        """Unload a model that is not used; as ``Models.unload_when_idle``. Raises: ApiError 404."""
        models = self.service.models
        models.unload_when_idle(models.find(self.ignored, name), self.caller.owner)

    async def lease(self, name: str | None) -> ModelLease:
        """Load the model of a name and lease it; as ``Models.lease``."""
        return await self.service.models.lease(self.ignored, name, self.caller.owner)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and a path, and the function that answers."""

    method: str
    path: str
    handle: Callable[[Call[Any]], Awaitable[ASGI]]
    summary: str
    body: Any = None  # the Struct of a JSON body
    form: Any = None  # the Struct of a multipart/form-data body
    limit: Literal["max_audio", "max_file"] = "max_audio"  # the setting that limits a form
    answer: Any = None  # the type of the JSON response
    event: Any = None  # the type of the data of a streamed response
    media_type: str = "application/json"
    stream_type: str = "text/event-stream"
    family: ErrorFamily = OPENAI  # the form of errors
    open: bool = False  # no key is needed
    done: bool = False  # the stream ends with OpenAI's "[DONE]"
    chosen: bool = False  # a request may select fields of the response
    query: Any = None  # the Struct of the query's parameters
    empty: bool = False  # the response is 204 without a body
    bodiless: bool = False  # a missing body counts as an empty object
    generates: bool = False  # refused with 429 while the queue is full, before it is prepared


PIECE = 1 << 18  # bytes of a body that are handed to a connection at once


async def send_body(body: bytes, send: Send) -> None:
    """Send a body in pieces, as fast as the client reads."""
    for start in range(0, max(1, len(body)), PIECE):
        if start:
            await asyncio.sleep(0)  # others' turn, where nothing has held this one up
        end = start + PIECE
        part = body[start:end] if len(body) > PIECE else body
        await send({"type": "http.response.body", "body": part, "more_body": end < len(body)})


class PlainText:
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
