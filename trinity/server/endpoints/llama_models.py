"""llama.cpp's router: POST /models/load and /models/unload, and events of loading."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.errors import LLAMA
from trinity.server.models import Models
from trinity.server.schemas import Body, encode
from trinity.server.stream import Stream, data
from trinity.server.transport.connection import CONNECTION, Connection

MOST_EVENTS = 1000  # that wait for a slow client, which gets the newest


class ModelName(Body):
    """The name of a model."""

    model: str


class Success(msgspec.Struct):
    """The request was accepted."""

    success: bool = True


class StatusData(msgspec.Struct):
    """The new status of a model."""

    status: str
    failed: bool | UnsetType = UNSET


class ModelEvent(msgspec.Struct):
    """A change of a model; "*": the list of models has changed."""

    model: str
    event: Literal["model_status", "model_remove", "models_reload"]
    data: StatusData | UnsetType = UNSET


class Watch:
    """The events of all models, from now on until the server begins to end.

    ``ending`` has the functions that are called then.
    """

    predicted = None

    def __init__(self, models: Models, ending: set[Callable[[], None]]) -> None:
        self._models, self._ending = models, ending
        self._has_ended = False
        self._waiting = deque[ModelEvent](maxlen=MOST_EVENTS)
        self._changed = asyncio.Event()
        models.watching.add(self._told)
        ending.add(self._end)

    @property
    def has_next(self) -> bool:
        """Whether an event waits."""
        return bool(self._waiting)

    def close(self) -> None:
        """Stop watching."""
        self._models.watching.discard(self._told)
        self._ending.discard(self._end)

    async def events(self) -> AsyncGenerator[bytes]:
        """The events, as they come."""
        while True:
            self._changed.clear()
            while self._waiting:
                yield data(encode(self._waiting.popleft()))
            if self._has_ended:
                return
            await self._changed.wait()

    def _end(self) -> None:
        self._has_ended = True
        self._changed.set()

    def _told(self, name: str, status: str | None) -> None:
        if status is not None:
            served = self._models.served.get(name)
            failed = True if served is not None and served.failed else UNSET
            event = ModelEvent(name, "model_status", StatusData(status, failed))
        elif name == "*":
            event = ModelEvent(name, "models_reload")
        else:
            event = ModelEvent(name, "model_remove")
        self._waiting.append(event)
        self._changed.set()


async def watch(call: Call[Any]) -> ASGI:
    """Stream what happens to the models."""
    models = call.service.models
    connection: Connection | None = call.request.scope.get("state", {}).get(CONNECTION)
    ending = set[Callable[[], None]]() if connection is None else connection.server_state.ending

    async def started() -> Watch:
        return Watch(models, ending)

    return Stream(started, Watch.events)


async def load(call: Call[ModelName]) -> ASGI:
    """Load a model, and respond once it is loaded."""
    (await call.lease(call.body.model)).release()
    return Json(Success())


async def unload(call: Call[ModelName]) -> ASGI:
    """Unload a model once it is idle and every key that used it has asked for it."""
    call.keep(call.body.model, 0)
    return Json(Success())


ENDPOINTS = (
    Endpoint("GET", "/models/sse", watch, "What happens to the models.", event=ModelEvent),
    Endpoint("POST", "/models/load", load, "Load a model.", body=ModelName, answer=Success,
             family=LLAMA),
    Endpoint("POST", "/models/unload", unload, "Unload a model.", body=ModelName, answer=Success,
             family=LLAMA),
)  # fmt: skip
