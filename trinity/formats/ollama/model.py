"""A model in Ollama's store: its GGUF file and the settings in the other layers.

Source: Ollama, server/images.go, GetModel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from trinity.config import ModelConfig
from trinity.errors import ConfigError, FormatError, TrinityError, UnsupportedError
from trinity.formats.defaults import ChatTemplate, Defaults, Message
from trinity.formats.gguf import GGUFProvider
from trinity.formats.json_object import parse_json_list, parse_json_object
from trinity.formats.ollama.blob import blob_path, small_blob, small_text
from trinity.formats.ollama.manifest import Layer, Manifest
from trinity.formats.ollama.params import Params, read_params

_READ = (
    "model",
    "adapter",
    "projector",
    "tensor",
    "json",
    "template",
    "prompt",
    "system",
    "params",
    "messages",
)
_OF_NO_USE = ("license", "embed")
_MEMORY = 40_000_000  # limit for the objects of a JSON text, in bytes


@dataclass(frozen=True, slots=True)
class Layers:
    """The contents of a manifest's small layers."""

    manifest: Manifest
    renderer: str | None  # name of a chat format that is built into Ollama; overrides ``template``
    template: ChatTemplate | None
    system: str | None
    messages: tuple[Message, ...]
    params: Params
    adapters: tuple[str, ...]  # files of LoRA adapters
    notices: tuple[str, ...]  # lines for the user

    @property
    def is_gguf(self) -> bool:
        """Whether the weights are a GGUF file rather than one blob per tensor."""
        return bool(self.manifest.of_kind("model"))

    def over(
        self, own: Defaults, templates: tuple[ChatTemplate, ...], config: ModelConfig
    ) -> Defaults:
        """Return the layers' defaults combined with ``own``, those of the weights' files.

        The layers' override them. A context longer than the model's is reduced to it, as in Ollama.
        """
        loading = dict(self.params.loading)
        wanted = loading.get("context_length")
        if isinstance(wanted, int):
            loading["context_length"] = min(wanted, config.context_length)
        if self.adapters:
            loading["lora"] = self.adapters
        return Defaults(
            templates=templates,
            system=self.system,
            messages=self.messages,
            options={**own.options, **self.params.options},
            loading=loading,
            end_ids=own.end_ids,
            source=f"{self.manifest.typed}: {self.manifest.path}: its params layer",
        )


def read_layers(manifest: Manifest) -> Layers:
    """Read and check all small layers of a model.

    Raises FormatError or ConfigError if one is damaged or malformed, InputError if it is missing,
    UnsupportedError for a model that trinity does not support.
    """
    config = config_of(manifest)
    _refuse(manifest, config)
    notices = [
        f"{manifest.typed}: its {layer.kind} layer is ignored"
        for layer in manifest.layers
        if layer.kind not in (*_READ, *_OF_NO_USE)
    ]
    params, options = _last(manifest, "params"), Params()
    if params is not None:
        what = f"the params layer {params.digest}"
        options = read_params(
            _object(manifest, params), lambda wrong: _config_error(manifest, f"{what}: {wrong}")
        )
    template = _last(manifest, "template", "prompt")
    system, messages = _last(manifest, "system"), _last(manifest, "messages")
    renderer = config.get("renderer") or config.get("parser")
    return Layers(
        manifest,
        renderer if isinstance(renderer, str) else None,
        None
        if template is None
        else ChatTemplate(small_text(manifest, template), "go", f"its layer {template.digest}"),
        None if system is None else small_text(manifest, system),
        () if messages is None else _messages(manifest, messages),
        options,
        tuple(blob_path(manifest, layer) for layer in manifest.of_kind("adapter")),
        (*notices, *(f"{manifest.typed}: {notice}; it is ignored" for notice in options.notices)),
    )


def config_of(manifest: Manifest) -> dict[str, object]:
    """The object of a manifest's configuration. Raises: as ``read_layers``."""
    return _object(manifest, manifest.config) if manifest.config else {}


def params_of(manifest: Manifest) -> dict[str, object]:
    """The object of a model's params layer, in Ollama's names. Raises: as ``read_layers``."""
    params = _last(manifest, "params")
    return {} if params is None else _object(manifest, params)


class OllamaModel(GGUFProvider):
    """The GGUF file of a model in the store, with the store's defaults."""

    def __init__(
        self, layers: Layers, *, i2s_layout: str = "x86", tl_config: str | os.PathLike[str] | None
    ) -> None:
        manifest = layers.manifest
        (layer,) = manifest.of_kind("model")
        self.layers = layers
        self.templates: tuple[ChatTemplate, ...] = ()
        towers = manifest.of_kind("projector")
        self.mmproj = blob_path(manifest, towers[0]) if towers else None
        try:
            super().__init__(blob_path(manifest, layer), i2s_layout=i2s_layout, tl_config=tl_config)
        except TrinityError as error:
            raise manifest.within(f"the model layer {layer.digest}", error) from error

    @property
    def jinja(self) -> object:
        """The GGUF file's own chat template, or None."""
        return self.metadata.get("tokenizer.chat_template")

    @property
    def defaults(self) -> Defaults:
        """The layers' defaults, which override those of the GGUF file."""
        return self.layers.over(super().defaults, self.templates, self.config)


def _refuse(manifest: Manifest, config: Mapping[str, object]) -> None:
    """Raise an error if trinity does not support the model."""
    host = config.get("remote_host")
    if host:
        raise manifest.error(
            UnsupportedError,
            f"it is a cloud model: its weights are on {host!r:.80}, not on this machine",
            "choose a model that runs locally",
        )
    models = manifest.of_kind("model")
    if not models and not manifest.of_kind("tensor"):
        raise manifest.error(FormatError, "the manifest has no model layer")
    if len(models) > 1:
        raise manifest.error(
            UnsupportedError,
            f"there are {len(models)} model layers; trinity reads one GGUF file",
            "merge its parts with llama.cpp's gguf-split",
        )
    known = ("gguf", "") if models else ("safetensors",)
    file_format = config.get("model_format") or known[0]
    if file_format not in known:
        raise manifest.error(
            UnsupportedError,
            f"its model_format is {file_format!r:.40}; expected {known[0]}",
            "choose a GGUF model",
        )


def _last(manifest: Manifest, *kinds: str) -> Layer | None:
    layers = manifest.of_kind(*kinds)
    return layers[-1] if layers else None


def _object(manifest: Manifest, layer: Layer) -> dict[str, object]:
    raw = small_blob(manifest, layer)
    try:
        return parse_json_object(raw, "", _MEMORY)
    except FormatError as error:
        raise _malformed(manifest, layer, error) from error


def _messages(manifest: Manifest, layer: Layer) -> tuple[Message, ...]:
    raw = small_blob(manifest, layer)
    try:
        values = parse_json_list(raw, "", _MEMORY)
    except FormatError as error:
        raise _malformed(manifest, layer, error) from error
    messages = []
    for value in values:
        if not isinstance(value, dict) or not isinstance(value.get("role"), str):
            raise _malformed(manifest, layer, 'a message has no "role"')
        if not isinstance(value.get("content", ""), str):
            raise _malformed(manifest, layer, 'the "content" of a message is not text')
        messages.append({"content": "", **value})
    return tuple(messages)


def _malformed(manifest: Manifest, layer: Layer, what: object) -> TrinityError:
    return manifest.error(
        FormatError, f"the {layer.kind} layer {layer.digest}: {str(what).removeprefix(': ')}"
    )


def _config_error(manifest: Manifest, what: str) -> ConfigError:
    return ConfigError(str(manifest.error(ConfigError, what)))
