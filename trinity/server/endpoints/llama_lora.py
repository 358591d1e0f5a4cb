"""LoRA adapters of a model in llama.cpp's form: GET and POST /lora-adapters."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from trinity.runtime.options import Request
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.sampling import Loras
from trinity.server.errors import LLAMA
from trinity.server.schemas import ModelQuery


class Adapter(msgspec.Struct):
    """An adapter, and its scale for requests that do not set it."""

    id: int
    path: str
    scale: float


class Changed(msgspec.Struct):
    """It is done."""

    success: Literal[True] = True


async def adapters(call: Call[Any]) -> ASGI:
    """List all adapters."""
    lease = await call.lease(call.query.model)
    with lease as model:
        lora = lease.lora_of(call.caller.owner)
        loaded = enumerate(model.adapters)
        return Json(
            [
                Adapter(number, path, scale if lora is None else lora.get(number, 0.0))
                for number, (path, scale) in loaded
            ]
        )


async def weigh(call: Call[Loras]) -> ASGI:
    """Set the scales of adapters for later requests; others get 0."""
    lora = {adapter.id: adapter.scale for adapter in call.body}
    lease = await call.lease(call.query.model)
    with lease as model:
        model.engine.adapter_weights(Request.of(lora=lora).lora)  # raises an error for bad adapters
        lease.weigh(call.caller.owner, lora)
    return Json(Changed())


ENDPOINTS = (
    Endpoint(
        "GET", "/lora-adapters", adapters, "The adapters of a model.",
        answer=list[Adapter], query=ModelQuery, family=LLAMA,
    ),
    Endpoint(
        "POST", "/lora-adapters", weigh, "Weigh the adapters of a model.",
        body=Loras, answer=Changed, query=ModelQuery, family=LLAMA,
    ),
)  # fmt: skip
