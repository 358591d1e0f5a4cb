"""Endpoints, from whose table the routes and the OpenAPI document are made, and their responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
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
    """A request, as a handler gets it."""

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

    def keep(self, name: str, seconds: float) -> None:
        """Keep a model loaded for ``seconds`` after its last use; as ``Models.keep``.

        Raises: ApiError 404.
        """
        models = self.service.models
        models.keep(models.find(self.ignored, name), seconds, self.caller.owner)

    async def lease(self, name: str | None) -> ModelLease:
        """Load the model of a name and lease it; as ``Models.lease``."""
        return await self.service.models.lease(self.ignored, name, self.caller.owner)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and a path, and the function that handles their requests."""

    method: str
    path: str
    handle: Callable[[Call[Any]], Awaitable[ASGI]]
    summary: str
    body: Any = None  # the Struct of a JSON body
    form: Any = None  # the Struct of a multipart/form-data body
    limit: Literal["max_audio", "max_file"] = "max_audio"  # the setting that limits a form
    upload: bool = False  # the handler reads the body; ``Call.body`` is of ``bodies.upload``
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


CHUNK = 1 << 18  # bytes of a body that are passed to the connection at once


class Document:
    """A response with a complete body."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        body: bytes,
        content_type: str,
        status: int = 200,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.body = body
        self.status = status
        self.headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in (
                ("content-type", content_type),
                ("content-length", str(len(body))),
                *headers.items(),
            )
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response in chunks, as fast as the client reads."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        size = len(self.body)
        for start in range(0, max(1, size), CHUNK):
            if start:
                await asyncio.sleep(0)  # let other requests run
            end = start + CHUNK
            chunk = self.body[start:end] if size > CHUNK else self.body
            await send({"type": "http.response.body", "body": chunk, "more_body": end < size})


def text_document(text: str, media_type: str) -> Document:
    """Return a response of text in UTF-8."""
    return Document(text.encode(), f"{media_type}; charset=utf-8")


class Json(Document):
    """A response of one JSON document: a Struct, or another value that ``msgspec`` encodes."""

    __slots__ = ()

    def __init__(
        self, content: Any, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__(encode(content), "application/json", status, headers)
