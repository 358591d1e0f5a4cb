"""Whether the server is ready: GET /health."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.errors import ApiError


class Health(msgspec.Struct):
    """A model has been loaded, or models are loaded on demand."""

    status: Literal["ok"] = "ok"


async def health(call: Call[Any]) -> ASGI:
    """Answer 200 once the server can take requests, without waiting for a model.

    With --no-preload that is at once. The server stays ready after a model is unloaded, because
    the next request loads it again.
    """
    if call.service.settings.preload and not call.service.models.began:
        raise ApiError(503, "loading model", code="loading", headers={"Retry-After": "1"})
    return Json(Health())


ENDPOINTS = tuple(
    Endpoint(
        "GET", path, health, "Whether a model is loaded.", answer=Health, open=path == "/health"
    )
    for path in ("/health", "/v1/health")
)
