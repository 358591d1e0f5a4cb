"""Whether the server is ready: GET /health."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.errors import ApiError


class Health(msgspec.Struct):
    """A model has been loaded, or each is loaded when it is asked for.

    ``canary_checked``: when all loaded models were last seen to compute what they computed at
    first, in seconds since the epoch; null before.
    """

    canary_checked: int | None
    status: Literal["ok"] = "ok"


async def health(call: Call[Any]) -> ASGI:
    """It never waits for a model; where none is loaded at the start, it is ready at once.

    It stays ready where a model is unloaded: the next request loads it again.
    """
    if call.service.settings.preload and not call.service.models.began:
        raise ApiError(503, "loading model", code="loading", headers={"Retry-After": "1"})
    canary = call.service.canary
    if canary.differing is not None:
        raise ApiError(503, canary.differing, code="canary")
    return Json(Health(canary.checked))


ENDPOINTS = tuple(
    Endpoint(
        "GET", path, health, "Whether a model is loaded.", answer=Health, open=path == "/health"
    )
    for path in ("/health", "/v1/health")
)
