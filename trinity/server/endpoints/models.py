"""Which models there are: GET /v1/models and /v1/models/{name}."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.schemas import Body
from trinity.server.served import Served

if TYPE_CHECKING:
    from trinity.model import Model

# A header that Anthropic's clients send: they get the fields of Anthropic's list as well.
ANTHROPIC = "anthropic-version"


class ListQuery(Body):
    """``reload``: read the presets and folders of models again before, as llama.cpp's router."""

    reload: bool = False


class Status(msgspec.Struct):
    """Whether a model is there, in the words of llama.cpp's router."""

    value: Literal["unloaded", "loading", "loaded"]
    failed: bool | UnsetType = UNSET  # it could not be loaded


class ModelArchitecture(msgspec.Struct):
    """The modalities of a model, in llama.cpp's terms."""

    input_modalities: list[str] = msgspec.field(default_factory=lambda: ["text"])
    output_modalities: list[str] = msgspec.field(default_factory=lambda: ["text"])


class Meta(msgspec.Struct):
    """Sizes of a loaded model, in llama.cpp's names."""

    n_vocab: int
    n_ctx_train: int
    n_ctx: int
    n_embd: int


class ModelCard(msgspec.Struct):
    """A model that may be asked for; ``context_length`` is known once it is loaded.

    The last five fields are Anthropic's.
    """

    id: str
    created: int
    loaded: bool
    context_length: int | None
    status: Status
    aliases: list[str]
    tags: list[str]
    meta: Meta | None
    object: Literal["model"] = "model"
    owned_by: str = "trinity"
    architecture: ModelArchitecture = msgspec.field(default_factory=ModelArchitecture)
    type: Literal["model"] | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    created_at: datetime | UnsetType = UNSET
    lifecycle: Literal["active"] | UnsetType = UNSET
    max_input_tokens: int | UnsetType | None = UNSET


class LlamaModel(msgspec.Struct):
    """A model in the form of llama.cpp's own list. "multimodal": it reads images."""

    name: str
    model: str
    capabilities: list[str]


class ModelList(msgspec.Struct):
    """All models; requests that name none use the first.

    ``models`` is llama.cpp's, the last three fields are Anthropic's.
    """

    data: list[ModelCard]
    object: Literal["list"] = "list"
    models: list[LlamaModel] = msgspec.field(default_factory=list)
    has_more: bool | UnsetType = UNSET
    first_id: str | UnsetType = UNSET
    last_id: str | UnsetType = UNSET


def card(served: Served, *, anthropic: bool) -> ModelCard:
    """Return a model's entry in the list, with Anthropic's fields if ``anthropic``."""
    model = served.model
    length = None if model is None else model.context_length
    loaded = model is not None
    status = Status("loaded" if loaded else "loading" if served.loading else "unloaded")
    if served.failed and not served.loading:
        status.failed = True
    made = ModelCard(
        served.name, served.created, loaded, length, status, [*served.aliases], [*served.tags],
        None if model is None else meta(model),
    )  # fmt: skip
    if model is not None and model.reads_images:
        made.architecture.input_modalities.append("image")
    if anthropic:
        made.type, made.display_name, made.lifecycle = "model", served.name, "active"
        made.created_at = datetime.fromtimestamp(served.created, UTC)
        made.max_input_tokens = length
    return made


def llama_model(card: ModelCard) -> LlamaModel:
    """A card in the form of llama.cpp's own list."""
    sees = "image" in card.architecture.input_modalities
    return LlamaModel(card.id, card.id, ["completion", *(["multimodal"] if sees else [])])


def meta(model: Model) -> Meta:
    """The sizes of a model."""
    config = model.config
    return Meta(config.vocab_size, config.context_length, model.context_length, config.hidden_size)


async def models(call: Call[Any]) -> ASGI:
    """List all models."""
    if call.query.reload and call.service.models.reload is not None:
        await call.service.models.reload()
    anthropic = ANTHROPIC in call.request.headers
    cards = [card(one, anthropic=anthropic) for one in call.service.models.served.values()]
    listed = ModelList(cards, models=[llama_model(one) for one in cards])
    if anthropic:
        listed.has_more, listed.first_id, listed.last_id = False, cards[0].id, cards[-1].id
    return Json(listed)


async def model(call: Call[Any]) -> ASGI:
    """Describe a model."""
    served = call.service.models.find(call.ignored, call.request.path_params["model"])
    return Json(card(served, anthropic=ANTHROPIC in call.request.headers))


ENDPOINTS = (
    Endpoint("GET", "/v1/models", models, "The models that may be asked for.", answer=ModelList,
             query=ListQuery),
    Endpoint("GET", "/models", models, "The models that may be asked for.", answer=ModelList,
             query=ListQuery),
    Endpoint("GET", "/v1/models/{model:path}", model, "One model.", answer=ModelCard),
)  # fmt: skip
