"""Models that are loaded and unloaded, as by llama.cpp's router: POST /models/load and unload."""

from __future__ import annotations

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.schemas import Body


class ModelName(Body):
    """The name of a model."""

    model: str


class Success(msgspec.Struct):
    """It was done, or is under way."""

    success: bool = True


async def load(call: Call[ModelName]) -> ASGI:
    """Load a model; the answer comes once it is loaded."""
    (await call.lease(call.body.model)).release()
    return Json(Success())


async def unload(call: Call[ModelName]) -> ASGI:
    """Unload a model once nobody uses it and every key that used it has asked for it."""
    call.unload(call.body.model)
    return Json(Success())


ENDPOINTS = (
    Endpoint("POST", "/models/load", load, "Load a model.", body=ModelName, answer=Success),
    Endpoint("POST", "/models/unload", unload, "Unload a model.", body=ModelName, answer=Success),
)
