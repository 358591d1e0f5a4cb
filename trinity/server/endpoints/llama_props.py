"""llama.cpp's descriptions of a server: GET /props and /slots."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.llama_answer import settings
from trinity.server.endpoints.llama_completion import MEDIA_MARKER
from trinity.server.endpoints.usage import FINGERPRINT
from trinity.server.errors import LLAMA, ApiError
from trinity.server.prepared import CHATML
from trinity.server.schemas import ModelQuery
from trinity.tokenizers.tokenizer import Tokenizer


class Props(msgspec.Struct):
    """The properties that llama.cpp's clients query."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_path: str
    chat_template: str
    build_info: str
    chat_template_caps: dict[str, bool]
    modalities: dict[str, bool]
    model_alias: str
    bos_token: str
    eos_token: str
    endpoint_slots: bool = True
    endpoint_props: bool = False  # POST /props
    endpoint_metrics: bool = True
    is_sleeping: bool = False
    media_marker: str = MEDIA_MARKER


def token_text(tokenizer: Tokenizer, token: int | None) -> str:
    """The text of a special token; "" if the model has none."""
    return "" if token is None else tokenizer.token_text(token)


async def props(call: Call[Any]) -> ASGI:
    """A model, by default the first one, and its default options."""
    lease = await call.lease(call.query.model)
    with lease as model:
        templates, tokenizer = model.chat_templates, model.tokenizer
        return Json(
            Props(
                {
                    "id": 0,
                    "id_task": -1,
                    "n_ctx": model.context_length,
                    "speculative": True,
                    "is_processing": False,
                    "params": settings(model, {**lease.defaults, **call.service.defaults}),
                },
                model.max_sequences or 1,
                lease.ref,
                templates[0].text if templates else CHATML,
                FINGERPRINT,
                {},
                {"vision": model.reads_images, "audio": False, "video": False},
                lease.name,
                token_text(tokenizer, tokenizer.bos_id),
                token_text(tokenizer, tokenizer.eos_id),
            )
        )


class Slot(msgspec.Struct):
    """A slot."""

    id: int
    n_ctx: int
    is_processing: bool
    id_task: int = -1
    speculative: bool = True


class SlotsQuery(ModelQuery):
    """``fail_on_no_slot``: the response is an error while no slot is idle."""

    fail_on_no_slot: bool | None = None


async def slots(call: Call[Any]) -> ASGI:
    """The slots of a model, by default the first, one for each response that may run at once.

    A slot is busy while a response runs in it. If that number has no limit, there is a busy slot
    for each running response, or one idle slot if none runs.
    """
    with await call.lease(call.query.model) as model:
        running = model.scheduler_stats().running
        length = model.context_length
        count = model.max_sequences or max(1, running)
        if call.query.fail_on_no_slot and running >= (model.max_sequences or math.inf):
            raise ApiError(503, f"all {count} slots are busy", "fail_on_no_slot")
        return Json([Slot(i, length, i < running) for i in range(count)])


ENDPOINTS = (
    Endpoint("GET", "/props", props, "What a model is.", answer=Props, query=ModelQuery,
             family=LLAMA),
    Endpoint("GET", "/slots", slots, "Which answers run.", answer=list[Slot], query=SlotsQuery,
             family=LLAMA),
)  # fmt: skip
