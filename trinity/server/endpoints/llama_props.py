"""What llama.cpp's clients ask of a server: GET /props and /slots."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.llama_answer import settings
from trinity.server.endpoints.llama_completion import MEDIA_MARKER
from trinity.server.endpoints.usage import FINGERPRINT
from trinity.server.errors import ApiError
from trinity.server.prepared import CHATML


class Props(msgspec.Struct):
    """The properties that llama.cpp's clients query."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_path: str
    chat_template: str
    build_info: str
    chat_template_caps: dict[str, bool]
    modalities: dict[str, bool]
    is_sleeping: bool = False
    media_marker: str = MEDIA_MARKER


async def props(call: Call[Any]) -> ASGI:
    """The first model and its default options."""
    with await call.lease(None) as model:
        templates = model.chat_templates
        return Json(
            Props(
                {
                    "id": 0,
                    "id_task": -1,
                    "n_ctx": model.context_length,
                    "speculative": True,
                    "is_processing": False,
                    "params": settings(model, call.service.defaults),
                },
                model.max_sequences or 1,
                call.service.models.first.ref,
                templates[0].text if templates else CHATML,
                FINGERPRINT,
                {},
                {"vision": model.reads_images, "audio": False},
            )
        )


class Slot(msgspec.Struct):
    """A slot."""

    id: int
    n_ctx: int
    is_processing: bool
    id_task: int = -1
    speculative: bool = True


class SlotsQuery(msgspec.Struct):
    """``fail_on_no_slot``: the response is an error while no slot is idle."""

    fail_on_no_slot: bool | None = None


async def slots(call: Call[Any]) -> ASGI:
    """The slots of the first model, one for each response that may run at the same time.

    A slot is busy while a response runs in it. If that number has no limit, there is a busy slot
    for each running response, or one idle slot if none runs.
    """
    with await call.lease(None) as model:
        running = model.scheduler_stats().running
        length = model.context_length
        count = model.max_sequences or max(1, running)
        if call.query.fail_on_no_slot and running >= (model.max_sequences or math.inf):
            raise ApiError(503, f"all {count} slots are busy", "fail_on_no_slot")
        return Json([Slot(i, length, i < running) for i in range(count)])


ENDPOINTS = (
    Endpoint("GET", "/props", props, "What the first model is.", answer=Props),
    Endpoint("GET", "/slots", slots, "Which answers run.", answer=list[Slot], query=SlotsQuery),
)
