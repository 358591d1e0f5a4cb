"""Which models there are: GET /v1/models and /v1/models/{name}."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.models import Served


class Status(msgspec.Struct):
    """Whether a model is there, in the words of llama.cpp's router."""

    value: Literal["unloaded", "loading", "loaded"]


class ModelCard(msgspec.Struct):
    """A model that may be asked for; ``context_length`` is known once it is loaded."""

    id: str
    created: int
    loaded: bool
    context_length: int | None
    status: Status
    aliases: list[str]
    tags: list[str]
    object: Literal["model"] = "model"
    owned_by: str = "trinity"


class ModelList(msgspec.Struct):
    """All models, the first of which answers where none is named."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


def card(served: Served) -> ModelCard:
    """What is said of a model."""
    model = served.model
    length = None if model is None else model.context_length
    loaded = model is not None
    status = Status("loaded" if loaded else "loading" if served.loading else "unloaded")
    return ModelCard(
        served.name, served.created, loaded, length, status, [*served.aliases], [*served.tags]
    )


async def models(call: Call[Any]) -> ASGI:
    """All models."""
    return Json(ModelList([card(one) for one in call.service.models.served.values()]))


async def model(call: Call[Any]) -> ASGI:
    """One model."""
    return Json(card(call.service.models.find(call.request.path_params["model"])))


ENDPOINTS = (
    Endpoint("GET", "/v1/models", models, "The models that may be asked for.", answer=ModelList),
    Endpoint("GET", "/models", models, "The models that may be asked for.", answer=ModelList),
    Endpoint("GET", "/v1/models/{model:path}", model, "One model.", answer=ModelCard),
)
