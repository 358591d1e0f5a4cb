"""Names in Ollama's store: ``ollama:NAME[:TAG]``, and existing names without the prefix."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from trinity.errors import InputError, TrinityError, UnsupportedError
from trinity.formats.ollama.manifest import PREFIX, Manifest, read_manifest
from trinity.formats.ollama.name import Name, parse_name, without_source
from trinity.formats.ollama.store import stores
from trinity.formats.provider import WeightProvider
from trinity.options.load_options import LoadOptions
from trinity.providers.kind import Kind, Notice
from trinity.providers.near import near

if TYPE_CHECKING:
    from trinity.formats.ollama.model import OllamaModel
    from trinity.providers.ollama_tensors import OllamaTensors


def _open(name: str, options: LoadOptions, notice: Notice) -> WeightProvider:
    return open_manifest(_manifest(name), options, notice)


def open_manifest(manifest: Manifest, options: LoadOptions, notice: Notice) -> WeightProvider:
    """Open the model of a manifest. Raises: as ``open_weights``."""
    from trinity.formats.ollama.model import OllamaModel, read_layers
    from trinity.providers.ollama_templates import templates_of

    layers = read_layers(manifest)
    for line in layers.notices:
        notice(line)
    model: OllamaModel | OllamaTensors
    if layers.is_gguf:
        model = OllamaModel(layers, i2s_layout=options.i2s_layout, tl_config=options.tl_config)
    else:
        from trinity.providers.ollama_tensors import open_tensors

        model = open_tensors(layers, options.weight_scale)
        for note in model.notes:
            notice(f"note: {note}")
    try:
        model.templates = templates_of(layers, model.jinja, notice)
    except BaseException:
        model.close()
        raise
    return model


def _open_bare(name: str, options: LoadOptions, notice: Notice) -> WeightProvider:
    notice(
        f"{name}: there is no file of that name; using the model in Ollama's store ({PREFIX}{name})"
    )
    return _open(name, options, notice)


def _manifest(typed: str) -> Manifest:
    text, remote = without_source(typed.removeprefix(PREFIX))
    if remote:
        raise UnsupportedError(
            f"{typed}: this model runs on Ollama's servers, and its weights are not on this "
            "machine; choose a model that runs locally"
        )
    name = parse_name(text)
    if name.problem is not None:
        raise InputError(
            f"{typed}: not a valid name in Ollama's store: {name.problem}; expected "
            "[host/][namespace/]model[:tag]"
        )
    places = stores()
    for store in places:
        path = store.find(name)
        if path is not None:
            return read_manifest(store, path, typed)
    tried = " and ".join(store.manifest_path(name) for store in places)
    raise InputError(f"{typed}: there is no such model; tried {tried}; {_advice(name, text)}")


def _advice(name: Name, text: str) -> str:
    places = stores()
    if not any(os.path.isdir(store.root) for store in places):
        return "the store does not exist: set OLLAMA_MODELS to the folder that contains manifests"
    close = _near(name)
    if close:
        return f"did you mean {' or '.join(PREFIX + match for match in close)}?"
    return f"`ollama pull {text}` downloads it; if the store is in another place, set OLLAMA_MODELS"


def _near(name: Name) -> list[str]:
    return near(name.shortest, (known for store in stores() for known in store.names()))


def _claims_bare(name: str) -> bool:
    text, remote = without_source(name)
    parsed = parse_name(text)
    if remote or parsed.problem is not None:
        return False
    with suppress(TrinityError):
        return any(store.find(parsed) for store in stores())
    return False


def _similar_bare(name: str) -> Iterable[str]:
    parsed = parse_name(without_source(name)[0])
    return _near(parsed) if parsed.problem is None else ()


OLLAMA = Kind(f"{PREFIX}NAME[:TAG]", lambda name: name.startswith(PREFIX), _open)
OLLAMA_BARE = Kind("a name in Ollama's store", _claims_bare, _open_bare, close_names=_similar_bare)
