"""llama.cpp's POST /v1/chat/completions/control: ends the reasoning of a running completion."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.schemas import Body


class ControlRequest(Body):
    """A streamed chat completion in progress, and what to do with it."""

    id: Annotated[str, Meta(min_length=1)]
    action: Literal["reasoning_end"]
    model: str | None = None  # llama.cpp's router needs it; ids are unique here


class Controlled(msgspec.Struct):
    """Whether it was done, and if not, why."""

    success: bool
    message: str | UnsetType = UNSET


async def control(call: Call[ControlRequest]) -> ASGI:
    """End the reasoning of a completion; without effect if it does not reason."""
    answers = call.service.owned[call.caller.owner].running.get(call.body.id)
    if answers is None:
        return Json(Controlled(False, "no active completion for this id"))
    if answers.control is None:
        return Json(Controlled(False, "reasoning control not enabled for this completion"))
    answers.control.end()
    return Json(Controlled(True))


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/chat/completions/control", control, "End the reasoning of a completion.",
        body=ControlRequest, answer=Controlled,
    ),
)  # fmt: skip
