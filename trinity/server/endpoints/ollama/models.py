"""Which models there are, in Ollama's form: /api/tags, /api/ps, /api/show, /api/version."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Sized
from datetime import UTC, datetime
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec

from trinity import __version__
from trinity.errors import TrinityError
from trinity.model import Model
from trinity.model_defaults import made_for
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.ollama.errors import OLLAMA, timestamp
from trinity.server.endpoints.ollama.options import Asking
from trinity.server.prepared import template_of
from trinity.server.served import Served
from trinity.server.thinking import can_think

log = logging.getLogger("trinity.server")

if TYPE_CHECKING:
    from trinity.formats import WeightProvider

# Nothing is unloaded by time.
NEVER = "9999-12-31T23:59:59Z"
SHORT_LIST = 5  # as in Ollama
UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))


class Details(msgspec.Struct):
    """What a model is; empty as long as it is not loaded."""

    format: str = ""
    family: str = ""
    families: list[str] = []
    parameter_size: str = ""
    quantization_level: str = ""
    parent_model: str = ""


class ModelTag(msgspec.Struct):
    """A model that may be asked for; ``digest`` is of what it is loaded from, not of its bytes."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details


class ModelTags(msgspec.Struct):
    """All models."""

    models: list[ModelTag]


class Running(msgspec.Struct):
    """A model that is loaded; it stays so until another one needs the memory."""

    name: str
    model: str
    size: int
    digest: str
    details: Details
    expires_at: str
    size_vram: int
    context_length: int


class RunningModels(msgspec.Struct):
    """All models that are loaded."""

    models: list[Running]


class ShowRequest(Asking, kw_only=True):
    """The body of POST /api/show; ``verbose`` adds the long lists of the vocabulary."""

    verbose: bool | None = None


class Shown(msgspec.Struct):
    """What is known of a model, which is loaded for it."""

    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class Version(msgspec.Struct):
    """The server's version."""

    version: str


async def tags(call: Call[Any]) -> ASGI:
    """All models."""
    served = call.service.models.served.values()
    return Json(ModelTags(await asyncio.to_thread(tags_of, list(served))))


def tags_of(models: Iterable[Served]) -> list[ModelTag]:
    """What is said of models, those left out whose files cannot be opened."""
    tags = []
    for served in models:
        try:
            tags.append(tag_of(served))
        except (OSError, TrinityError) as error:
            log.warning("the model %s is not listed: %s", served.name, error)
    return tags


async def running(call: Call[Any]) -> ASGI:
    """The models that are loaded."""
    loaded = [
        (served, served.model)
        for served in call.service.models.served.values()
        if served.model is not None
    ]

    def described() -> list[Running]:
        listed = []
        for served, model in loaded:
            tag = tag_of(served)
            listed.append(
                Running(
                    tag.name, tag.model, tag.size, tag.digest, details_of(model), NEVER, 0,
                    model.context_length,
                )
            )  # fmt: skip
        return listed

    return Json(RunningModels(await asyncio.to_thread(described)))


async def show(call: Call[ShowRequest]) -> ASGI:
    """What is known of one model."""
    models, body = call.service.models, call.body
    name = body.served(call.ignored, models)
    with await call.lease(name) as model:
        served = models.find(call.ignored, name)
        return Json(await asyncio.to_thread(shown, served, model, bool(body.verbose)))


async def version(call: Call[Any]) -> ASGI:
    """The server's version."""
    return Json(Version(__version__))


def tag_of(served: Served) -> ModelTag:
    """What is said of a model in the list."""
    model = served.model
    return ModelTag(
        served.name,
        served.name,
        timestamp(datetime.fromtimestamp(served.created, UTC)),
        served.bytes or served.weigh(),
        hashlib.sha256(f"{served.name}={served.ref}".encode()).hexdigest(),
        Details() if model is None else details_of(model),
    )


def details_of(model: Model) -> Details:
    """What a loaded model is, from its tensors."""
    family, weights = model.config.architecture, model.weights
    if weights is None:
        return Details(family=family, families=[family])
    types = types_of(weights)
    count = types.total()
    form = "gguf" if weights.path.endswith(".gguf") else "safetensors"
    return Details(form, family, [family], short_count(count), types.most_common(1)[0][0])


def types_of(weights: WeightProvider) -> Counter[str]:
    """How many weights have which type."""
    types = Counter[str]()
    for name in weights.tensor_names():
        tensor = weights.tensor(name)
        types[tensor.type] += prod(tensor.shape)
    return types


def short_count(count: int) -> str:
    """A number such as 7.6B, as Ollama writes numbers of parameters."""
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def shown(served: Served, model: Model, verbose: bool) -> Shown:
    """What is known of a model."""
    templates = model.chat_templates
    template = templates[0].text if templates else ""
    parameters = "\n".join(f"{name:<30} {value}" for name, value in model.defaults.options.items())
    pooled = model.weights is not None and made_for(model.weights) is not None
    # What does not write, or was not trained to, has Ollama's word for that alone.
    capabilities = ["embedding"] if pooled or model.encodes else ["completion", "embedding"]
    if "tools" in template.lower():
        capabilities.append("tools")
    if can_think(template_of(model)):
        capabilities.append("thinking")
    if model.tokenizer.infill_ids is not None:
        capabilities.append("insert")
    return Shown(
        f"FROM {served.ref}\n",
        parameters,
        template,
        details_of(model),
        model_info(model, verbose),
        capabilities,
        timestamp(datetime.fromtimestamp(served.created, UTC)),
    )


def model_info(model: Model, verbose: bool) -> dict[str, Any]:
    """A file's metadata, with long lists only if they are asked for, and the number of weights."""
    if model.weights is None:
        return {}
    info: dict[str, Any] = {"general.parameter_count": types_of(model.weights).total()}
    for key, value in model.weights.metadata.items():
        if key in ("tokenizer.chat_template", "general.name"):
            continue  # which the answer has elsewhere
        if isinstance(value, str | bool | int | float):
            info[key] = value
        else:
            listed = isinstance(value, Sized) and len(value) > SHORT_LIST
            info[key] = [] if listed and not verbose else builtin(value)
    return info


def builtin(value: object) -> Any:
    """A list of a file's metadata as JSON has it."""
    listed = getattr(value, "tolist", None)
    if listed is not None:
        return listed()
    return [builtin(item) for item in value] if isinstance(value, list | tuple) else value


ENDPOINTS = (
    Endpoint("GET", "/api/tags", tags, "The models that may be asked for.", answer=ModelTags,
             family=OLLAMA),
    Endpoint("GET", "/api/ps", running, "The models that are loaded.", answer=RunningModels,
             family=OLLAMA),
    Endpoint("POST", "/api/show", show, "What is known of a model.", body=ShowRequest,
             answer=Shown, family=OLLAMA),
    Endpoint("GET", "/api/version", version, "The server's version.", answer=Version,
             family=OLLAMA),
)  # fmt: skip
