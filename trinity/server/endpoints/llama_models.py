"""Load and unload models as in llama.cpp's router: POST /models/load and /models/unload."""

from __future__ import annotations

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.schemas import Body


class ModelName(Body):
    """The name of a model."""

    model: str


class Success(msgspec.Struct):
    """The request was accepted."""

    success: bool = True


async def load(call: Call[ModelName]) -> ASGI:
    """Load a model, and respond once it is loaded."""
    (await call.lease(call.body.model)).release()
    return Json(Success())


async def unload(call: Call[ModelName]) -> ASGI:
    """Unload a model once it is idle and every key that used it has asked for it."""
    call.keep(call.body.model, 0)
    return Json(Success())


ENDPOINTS = (
    Endpoint("POST", "/models/load", load, "Load a model.", body=ModelName, answer=Success),
    Endpoint("POST", "/models/unload", unload, "Unload a model.", body=ModelName, answer=Success),
)
