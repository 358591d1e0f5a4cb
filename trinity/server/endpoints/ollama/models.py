"""Which models there are, in Ollama's form: /api/tags, /api/ps, /api/show, /api/version."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from math import prod
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trinity import __version__
from trinity.model import Model
from trinity.model_defaults import made_for
from trinity.server.endpoint import ASGI, Call, Endpoint, Json
from trinity.server.endpoints.ollama.errors import OLLAMA, known_name, timestamp
from trinity.server.models import Served
from trinity.server.schemas import Body

# Nothing is unloaded by time.
NEVER = "9999-12-31T23:59:59Z"
UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))


class Details(msgspec.Struct):
    """What a model is; empty as long as it is not loaded."""

    format: str = ""
    family: str = ""
    families: list[str] = []
    parameter_size: str = ""
    quantization_level: str = ""
    parent_model: str = ""


class Tag(msgspec.Struct):
    """A model that may be asked for; ``digest`` is of what it is loaded from, not of its bytes."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details


class Tags(msgspec.Struct):
    """All models."""

    models: list[Tag]


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


class ShowRequest(Body):
    """The body of POST /api/show; ``verbose`` adds the long lists of the vocabulary."""

    model: Annotated[str, Meta(min_length=1)]
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
    found = call.service.models.served.values()
    return Json(Tags(await asyncio.to_thread(lambda: [tag_of(one) for one in found])))


async def running(call: Call[Any]) -> ASGI:
    """The models that are loaded."""
    loaded = [
        (one, one.model) for one in call.service.models.served.values() if one.model is not None
    ]

    def described() -> list[Running]:
        found = []
        for served, model in loaded:
            tag = tag_of(served)
            found.append(
                Running(
                    tag.name, tag.model, tag.size, tag.digest, details_of(model), NEVER, 0,
                    model.context_length,
                )
            )  # fmt: skip
        return found

    return Json(RunningModels(await asyncio.to_thread(described)))


async def show(call: Call[ShowRequest]) -> ASGI:
    """What is known of one model."""
    models, body = call.service.models, call.body
    name = known_name(models, body.model)
    with await models.lease(name) as model:
        return Json(await asyncio.to_thread(shown, models.find(name), model, bool(body.verbose)))


async def version(call: Call[Any]) -> ASGI:
    """The server's version."""
    return Json(Version(__version__))


def tag_of(served: Served) -> Tag:
    """What is said of a model in the list."""
    model = served.model
    return Tag(
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
    count, types = 0, Counter[str]()
    for name in weights.tensor_names():
        tensor = weights.tensor(name)
        count += prod(tensor.shape)
        types[tensor.type] += prod(tensor.shape)
    form = "gguf" if weights.path.endswith(".gguf") else "safetensors"
    return Details(form, family, [family], short_count(count), types.most_common(1)[0][0])


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
    if "enable_thinking" in template or "reasoning_effort" in template or ".Think" in template:
        capabilities.append("thinking")
    metadata = {} if model.weights is None else model.weights.metadata
    return Shown(
        f"FROM {served.ref}\n",
        parameters,
        template,
        details_of(model),
        model_info(metadata, verbose),
        capabilities,
        timestamp(datetime.fromtimestamp(served.created, UTC)),
    )


def model_info(metadata: Mapping[str, object], verbose: bool) -> dict[str, Any]:
    """A file's metadata; long lists only if they are asked for, and the template has its place."""
    found: dict[str, Any] = {}
    for key, value in metadata.items():
        if key == "tokenizer.chat_template":
            continue
        if isinstance(value, str | bool | int | float):
            found[key] = value
        else:
            found[key] = builtin(value) if verbose else None
    return found


def builtin(value: object) -> Any:
    """A list of a file's metadata as JSON has it."""
    listed = getattr(value, "tolist", None)
    if listed is not None:
        return listed()
    return [builtin(one) for one in value] if isinstance(value, list | tuple) else value


ENDPOINTS = (
    Endpoint("GET", "/api/tags", tags, "The models that may be asked for.", answer=Tags,
             family=OLLAMA),
    Endpoint("GET", "/api/ps", running, "The models that are loaded.", answer=RunningModels,
             family=OLLAMA),
    Endpoint("POST", "/api/show", show, "What is known of a model.", body=ShowRequest,
             answer=Shown, family=OLLAMA),
    Endpoint("GET", "/api/version", version, "The server's version.", answer=Version,
             family=OLLAMA),
)  # fmt: skip
