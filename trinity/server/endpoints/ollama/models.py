"""Ollama's lists of models: /api/tags, /api/ps, /api/show and /api/version."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Sized
from datetime import UTC, datetime
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from trinity import __version__
from trinity.errors import TrinityError
from trinity.formats.ollama.blob import small_text
from trinity.formats.ollama.model import Layers, params_of
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

# The time at which a model is unloaded that stays loaded.
NEVER = "9999-12-31T23:59:59Z"
SHORT_LIST = 5  # as in Ollama
UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))


class Details(msgspec.Struct):
    """Format, family and size of a model; empty until it is loaded."""

    format: str = ""
    family: str = ""
    families: list[str] = []
    parameter_size: str = ""
    quantization_level: str = ""
    parent_model: str = ""


class ModelTag(msgspec.Struct):
    """A served model; ``digest`` is a hash of its path, not of its bytes.

    ``capabilities`` are known once it is loaded.
    """

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details
    capabilities: list[str] | UnsetType = UNSET


class ModelTags(msgspec.Struct):
    """All served models."""

    models: list[ModelTag]


class Running(msgspec.Struct):
    """A loaded model; ``expires_at``: when it is unloaded if no request uses it before."""

    name: str
    model: str
    size: int
    digest: str
    details: Details
    expires_at: str
    size_vram: int
    context_length: int


class RunningModels(msgspec.Struct):
    """All loaded models."""

    models: list[Running]


class ShowRequest(Asking, kw_only=True):
    """The body of POST /api/show; ``verbose`` adds the long lists of the vocabulary."""

    verbose: bool | None = None


class Shown(msgspec.Struct):
    """The description of a model; a request for it loads the model."""

    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
    system: str | UnsetType = UNSET
    license: str | UnsetType = UNSET
    messages: list[dict[str, Any]] | UnsetType = UNSET


class Version(msgspec.Struct):
    """The server's version."""

    version: str


async def tags(call: Call[Any]) -> ASGI:
    """All served models."""
    served = call.service.models.served.values()
    return Json(ModelTags(await call.run(tags_of, list(served))))


def tags_of(models: Iterable[Served]) -> list[ModelTag]:
    """List models, except those whose files cannot be opened."""
    tags = []
    for served in models:
        try:
            tags.append(tag_of(served))
        except (OSError, TrinityError) as error:
            log.warning("the model %s is not listed: %s", served.name, error)
    return tags


async def running(call: Call[Any]) -> ASGI:
    """List the loaded models."""
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
                    tag.name, tag.model, tag.size, tag.digest, details_of(model),
                    expiry_of(served), 0, model.context_length,
                )
            )  # fmt: skip
        return listed

    return Json(RunningModels(await call.run(described)))


async def show(call: Call[ShowRequest]) -> ASGI:
    """Describe a model."""
    models, body = call.service.models, call.body
    name = body.served(call.ignored, models)
    with await call.lease(name) as model:
        served = models.find(call.ignored, name)
        return Json(await call.run(shown, served, model, bool(body.verbose)))


async def version(call: Call[Any]) -> ASGI:
    """The server's version."""
    return Json(Version(__version__))


def tag_of(served: Served) -> ModelTag:
    """Return a model's entry in the list."""
    model = served.model
    return ModelTag(
        served.name,
        served.name,
        timestamp(datetime.fromtimestamp(served.created, UTC)),
        served.bytes or served.weigh(),
        hashlib.sha256(f"{served.name}={served.ref}".encode()).hexdigest(),
        Details() if model is None else details_of(model),
        UNSET if model is None else capabilities_of(model),
    )


def expiry_of(served: Served) -> str:
    """Return the time at which a loaded model is unloaded."""
    try:
        return timestamp(datetime.fromtimestamp(served.expires, UTC))
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return NEVER


def details_of(model: Model) -> Details:
    """Return the details of a loaded model, from its tensors."""
    family, weights = model.config.architecture, model.weights
    if weights is None:
        return Details(family=family, families=[family])
    types = types_of(weights)
    count = types.total()
    form = "gguf" if weights.path.endswith(".gguf") else "safetensors"
    return Details(form, family, [family], short_count(count), types.most_common(1)[0][0])


def types_of(weights: WeightProvider) -> Counter[str]:
    """Count the weights of each quantization type."""
    types = Counter[str]()
    for name in weights.tensor_names():
        tensor = weights.tensor(name)
        types[tensor.type] += prod(tensor.shape)
    return types


def short_count(count: int) -> str:
    """Format a number of parameters as Ollama does, such as 7.6B."""
    for size, unit in UNITS:
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def shown(served: Served, model: Model, verbose: bool) -> Shown:
    """Return the description of a model."""
    templates, defaults = model.chat_templates, model.defaults
    parameters, license = defaults.options, ""
    layers = getattr(model.weights, "layers", None)
    if isinstance(layers, Layers):  # a model of a store: in Ollama's names
        manifest = layers.manifest
        parameters = params_of(manifest)
        license = "\n".join(small_text(manifest, one) for one in manifest.of_kind("license"))
    pairs = [
        (name, value)
        for name, given in parameters.items()
        for value in (given if isinstance(given, list | tuple) else [given])
    ]
    modelfile = [f"FROM {served.ref}\n"]
    if defaults.system:
        modelfile.append(f'SYSTEM """{defaults.system}"""\n')
    modelfile += [f"PARAMETER {name} {written(value)}\n" for name, value in pairs]
    return Shown(
        "".join(modelfile),
        "\n".join(f"{name:<30} {written(value)}" for name, value in pairs),
        templates[0].text if templates else "",
        details_of(model),
        model_info(model, verbose),
        capabilities_of(model),
        timestamp(datetime.fromtimestamp(served.created, UTC)),
        defaults.system or UNSET,
        license or UNSET,
        [dict(message) for message in defaults.messages] or UNSET,
    )


def written(value: object) -> str:
    """A parameter's value as in a Modelfile: texts in quotation marks."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def capabilities_of(model: Model) -> list[str]:
    """The functions of a model, in Ollama's words.

    A chat model lacks "embedding", as in Ollama: clients would offer it for embeddings only.
    """
    pooled = model.weights is not None and made_for(model.weights) is not None
    capabilities = ["embedding"] if pooled or model.encodes else ["completion"]
    templates = model.chat_templates
    if templates and "tools" in templates[0].text.lower():
        capabilities.append("tools")
    if model.reads_images:
        capabilities.append("vision")
    if can_think(template_of(model)):
        capabilities.append("thinking")
    if model.tokenizer.infill_ids is not None:
        capabilities.append("insert")
    return capabilities


def model_info(model: Model, verbose: bool) -> dict[str, Any]:
    """Return a file's metadata and number of weights; long lists only with ``verbose``."""
    if model.weights is None:
        return {}
    info: dict[str, Any] = {"general.parameter_count": types_of(model.weights).total()}
    for key, value in model.weights.metadata.items():
        if key in ("tokenizer.chat_template", "general.name"):
            continue  # other fields of the response contain these
        if isinstance(value, str | bool | int | float):
            info[key] = value
        else:
            listed = isinstance(value, Sized) and len(value) > SHORT_LIST
            info[key] = [] if listed and not verbose else builtin(value)
    return info


def builtin(value: object) -> Any:
    """Convert a metadata value to JSON types."""
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
