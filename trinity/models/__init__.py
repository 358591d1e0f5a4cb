"""Architectures and classes of transformers, one file per family.

A file's ``ARCHITECTURES`` and its ``FAMILY``, or several ``FAMILIES``, are all its registration. A
lookup of one architecture imports the files that mention its name, not all.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import gguf_key
from trinity.formats.other_models import is_speech, other_model
from trinity.formats.provider import WeightProvider
from trinity.models.architecture import Architecture
from trinity.models.decoder import Decoder

if TYPE_CHECKING:
    from trinity.formats.huggingface.family import Family
    from trinity.formats.huggingface.hf_model import HFModel


class _Architectures(Mapping[str, Architecture]):
    """Looks up architectures by name."""

    def __init__(self) -> None:
        self._found: dict[str, Architecture] = {}

    def __getitem__(self, name: str) -> Architecture:
        if name in self._found:
            return self._found[name]
        for file in _mentioning(name):
            for architecture in getattr(_module(file), "ARCHITECTURES", ()):
                if name in architecture.names:
                    self._found[name] = architecture
                    return architecture  # type: ignore[no-any-return]
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> dict[str, Architecture]:
        return {
            name: architecture
            for file in _files()
            for architecture in getattr(_module(file), "ARCHITECTURES", ())
            for name in architecture.names
        }


def _files() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(__path__)]


def _mentioning(name: str) -> Iterator[str]:
    """The files that may declare an architecture: the one of its name, then others with it."""
    files = _files()
    first = name.replace("-", "_")
    if first in files:
        yield first
    for file in files:
        with suppress(OSError, UnicodeError):
            if f'"{name}"' in Path(__path__[0], f"{file}.py").read_text("utf-8"):
                yield file


def _module(file: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{file}")


ARCHITECTURES: Mapping[str, Architecture] = _Architectures()

# -- In transformers' checkpoints --

# Classes that have a language model of any of the classes below, and other networks, which are not
# read; and the model_type if text_config has none. OpenGVLab's InternVLChatModel has llm_config.
HOLDERS: Mapping[str, str | Mapping[str, str]] = {
    "InternVLChatModel": "qwen2",
    "InternVLForConditionalGeneration": "qwen2",
    "LlavaForConditionalGeneration": "llama",
    "LlavaNextForConditionalGeneration": "llama",
    "VoxtralForConditionalGeneration": "llama",
    # By config.json's version; 2.5 may have none.
    "MiniCPMV": {"None": "llama", "2.5": "llama", "2.6": "qwen2", "4.0": "llama", "4.5": "qwen3"},
    "MiniCPMO": {"2.6": "qwen2", "4.5": "qwen3"},
}
# The class of each model_type, with the defaults that published files of HOLDERS rely on.
HELD: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "llama": ("LlamaForCausalLM", {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 32000, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 2048,
    }),
    "mistral": ("MistralForCausalLM", {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        "rms_norm_eps": 1e-6, "max_position_embeddings": 1 << 17,
    }),
    "granite": ("GraniteForCausalLM", {}),
    "internlm2": ("InternLM2ForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {}),
    "gpt_oss": ("GptOssForCausalLM", {}),
}  # fmt: skip


@cache
def families() -> tuple[Family, ...]:
    """The classes of transformers that trinity reads, of every file."""
    return tuple(family for file in _files() for family in _families_in(_module(file)))


def _families_in(module: ModuleType) -> tuple[Family, ...]:
    if hasattr(module, "FAMILY"):
        return (module.FAMILY,)
    return getattr(module, "FAMILIES", ())


def families_of(architecture: str) -> tuple[Family, ...]:
    """The classes of transformers whose models have this architecture."""
    return tuple(family for family in families() if architecture in family.architectures)


def refuse_speech(metadata: Mapping[str, object], source: str) -> None:
    """Raise UnsupportedError for a speech model, which other commands run."""
    if is_speech(metadata):
        raise UnsupportedError(
            f"{source}: a Whisper model, for speech to text: run it with `trinity "
            "transcribe` and `trinity serve --speech-model`"
        )


def find_architecture(name: str, source: str, names: Collection[str] = ()) -> Architecture:
    """The architecture named in a file that has tensors ``names``.

    Raises UnsupportedError with the supported architectures, similar ones, and the tensors that no
    family reads.
    """
    refuse_speech({"general.architecture": name}, source)
    if name not in ARCHITECTURES:
        other = other_model({"general.architecture": name}, names)
        if other is not None:
            raise UnsupportedError(
                f"{source}: {other} (its architecture is {name[:64]!r}); trinity runs language "
                "models and embedders"
            )
        from trinity.models.nearest import nearest

        near = nearest(name, names, ARCHITECTURES)
        raise UnsupportedError(
            f"{source}: architecture {name[:64]!r} is not supported; {near}{'; ' if near else ''}"
            f"trinity runs {', '.join(sorted(ARCHITECTURES))}"
        )
    return ARCHITECTURES[name]


def _check_kinds(architecture: Architecture, config: ModelConfig, source: str) -> None:
    """Raise UnsupportedError for layers of several kinds in a family with one kind."""
    if config.layer_heads and not architecture.heads_by_layer:
        raise UnsupportedError(
            f"{source}: {config.architecture}.{gguf_key('num_heads')} (num_heads) varies by layer "
            f"(an array of {len(config.layer_heads)}), which is not supported for "
            f"{config.architecture}"
        )
    if architecture.mixed:
        return
    sizes = config.layer_intermediate_sizes
    if config.intermediate_size == 0 and config.experts is None:
        sizes = (0,)
    for name, of_layers in (
        ("head_count_kv", config.layer_kv_heads or (config.num_kv_heads,)),
        ("feed_forward_length", sizes),
    ):
        if 0 in of_layers:
            raise UnsupportedError(
                f"{source}: {name} is 0 for layer {of_layers.index(0)}; trinity runs models of "
                f"{config.architecture} whose layers all have attention and a feed-forward"
            )


def make_decoder(config: ModelConfig, names: Collection[str], source: str) -> Decoder:
    """The layers of a model that has tensors with these ``names``; shapes are not checked.

    Raises: UnsupportedError as ``find_architecture``; ConfigError for an impossible configuration,
    with the missing key.
    """
    architecture = find_architecture(config.architecture, source, names)
    config = architecture.completed(config)
    for field in architecture.needs:
        if not getattr(config, field):
            raise ConfigError(
                f"{source}: {config.architecture}.{gguf_key(field)} ({field}) is missing or 0, but "
                f"{config.architecture} needs it; convert the model again"
            )
    _check_kinds(architecture, config, source)
    try:
        return Decoder(architecture, config, names)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def decoder_of(
    config: ModelConfig,
    names: Collection[str],
    shape: Callable[[str], tuple[int, ...]],
    source: str,
) -> Decoder:
    """The layers of a model whose file has tensors with these ``names`` and shapes.

    Raises: as ``make_decoder`` and ``Decoder.check``.
    """
    decoder = make_decoder(config, names, source)
    decoder.check(shape, source)
    return decoder


def check_architecture(provider: WeightProvider) -> None:
    """Check that the file's architecture is supported, before anything else is read.

    Raises UnsupportedError as ``find_architecture``, and for a file without an architecture whose
    type or tensors are those of another kind of model.
    """
    metadata, names = provider.metadata, provider.tensor_names()
    refuse_speech(metadata, provider.path)
    other = other_model({"general.type": metadata.get("general.type")})
    named = metadata.get("general.architecture")
    if other is None and named is None:
        other = other_model({}, names)
    if other is not None:
        raise UnsupportedError(f"{provider.path}: {other}")
    if isinstance(named, str):
        find_architecture(named, provider.path, names)


def check_model(provider: WeightProvider) -> None:
    """Check an open model's tensors against its configuration, for text and speech models.

    Raises: UnsupportedError and ConfigError as ``decoder_of`` and ``speech_config``.
    """
    names = frozenset(provider.tensor_names())

    def shape(name: str) -> tuple[int, ...]:
        return provider.tensor(name).shape

    if is_speech(provider.metadata):
        from trinity.formats.speech_config import check_tensors, speech_config

        check_tensors(speech_config(provider.metadata, provider.path), names, shape)
        return
    check_architecture(
        provider
    )  # first, because other kinds of models lack the keys that are read next
    decoder_of(provider.config, names, shape, provider.path)


def read_model(values: Mapping[str, object], source: str) -> HFModel:
    """The model that the object ``values`` of the file ``source`` describes.

    Raises as ``hf_model``, and UnsupportedError for a class that is not known, listing those that
    are.
    """
    from trinity.formats.huggingface.config import class_name_of
    from trinity.formats.huggingface.hf_model import hf_model
    from trinity.formats.huggingface.values import Values

    named = values.get("_class_name")  # by diffusers
    if isinstance(named, str) and "architectures" not in values:
        kind = other_model({}, class_name=named) or "a model of diffusers; trinity reads text"
        raise UnsupportedError(f"{source}: {kind} (_class_name is {named[:60]!r})")
    class_name = class_name_of(Values(values, source))
    for family in families():
        if class_name in family.classes:
            return hf_model(values, source, family)
    inner = values.get("text_config")
    of_text = inner.get("model_type") if isinstance(inner, dict) else None
    wrappers = [family for family in families() if class_name in family.wrappers]
    for family in sorted(wrappers, key=lambda family: not family.inner_type):
        if family.inner_type in ("", of_text):
            return hf_model(_with_inner(values, class_name, source), source, family)
    if class_name in HOLDERS:
        both = _with_inner(values, class_name, source)
        return hf_model(both, source, _held(class_name, values, source))
    other = other_model({}, class_name=class_name)
    if other is not None:
        raise UnsupportedError(f"{source}: {other} (architectures names {class_name[:60]!r})")
    names = *HOLDERS, *(name for f in families() for name in (*f.classes, *f.wrappers))
    raise UnsupportedError(
        f"{source}: architectures names {class_name[:60]!r}; trinity reads "
        f"{', '.join(sorted(set(names)))}"
    )


def _with_inner(values: Mapping[str, object], class_name: str, source: str) -> dict[str, object]:
    """The configuration of the language model in a class that has other networks, too."""
    from trinity.formats.huggingface.values import shown

    key = _inner_key(values)
    inner = values.get(key)
    if inner is None and "hidden_size" in values:  # older files have no inner object
        inner = {}
    if not isinstance(inner, dict):
        raise ConfigError(
            f"{source}: {key} is {shown(inner)}; expected an object with the "
            f"configuration of the language model in {class_name}"
        )
    return {**values, **inner, "architectures": [class_name]}


def _inner_key(values: Mapping[str, object]) -> str:
    return "llm_config" if "llm_config" in values else "text_config"


def _held(class_name: str, values: Mapping[str, object], source: str) -> Family:
    """The family of the language model in one of the ``HOLDERS``."""
    key = _inner_key(values)
    inner = values.get(key)
    kind: object = inner.get("model_type") if isinstance(inner, dict) else None
    usual = HOLDERS[class_name]
    if not isinstance(usual, str):
        version = str(values.get("version"))
        if version not in usual or not {"vision_encoder", "scale_emb"}.isdisjoint(values):  # 2.0
            known = ", ".join(known for known in usual if known != "None")
            raise UnsupportedError(
                f"{source}: version is {version:.40}; trinity reads {class_name} {known}"
            )
        usual = usual[version]
    kind = usual if kind is None else kind
    if not isinstance(kind, str) or kind not in HELD:
        raise UnsupportedError(
            f"{source}: {key}: model_type is {kind!r:.60}; trinity reads {class_name} with "
            f"{', '.join(HELD)}"
        )
    text_class, sizes = HELD[kind]
    family = next(family for family in families() if text_class in family.classes)
    wrappers = {class_name: family.classes[text_class]}
    return replace(family, wrappers=wrappers, defaults={**sizes, **family.defaults})
