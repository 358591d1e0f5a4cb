"""Architectures and classes of transformers, one file per family.

A family's file declares ``ARCHITECTURES`` and ``FAMILIES``. FILES names the architectures of each
file, so that a GGUF file needs the import of its own family only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.other_models import other_model
from trinity.formats.provider import WeightProvider
from trinity.formats.speech_config import check_tensors, is_speech, speech_config
from trinity.models.architecture import Architecture
from trinity.models.decoder import Decoder

if TYPE_CHECKING:
    from trinity.formats.huggingface.config import HFConfig
    from trinity.formats.huggingface.family import Family

# The files of this package that declare architectures, and general.architecture's values for them.
FILES: dict[str, tuple[str, ...]] = {
    "arcee": ("arcee",),
    "bert": ("bert", "nomic-bert"),
    "bitnet": ("bitnet", "bitnet-b1.58", "bitnet-25"),
    "cohere": ("command-r", "cohere2"),
    "deepseek2": ("deepseek2",),
    "exaone4": ("exaone4",),
    "falcon_h1": ("falcon-h1",),
    "gemma": ("gemma", "gemma2", "gemma3", "gemma-embedding"),
    "gemma4": ("gemma4",),
    "glm4": ("glm4",),
    "glm4_moe": ("glm4moe",),
    "gpt_oss": ("gpt-oss",),
    "granite": ("granite", "granitemoe", "granitehybrid"),
    "lfm2": ("lfm2", "lfm2moe"),
    "llama": ("llama",),
    "mistral3": ("mistral3",),
    "nemotron_h": ("nemotron_h", "nemotron_h_moe"),
    "olmo2": ("olmo2",),
    "phi2": ("phi2",),
    "phi3": ("phi3",),
    "qwen": ("qwen2", "qwen3"),
    "qwen35": ("qwen35", "qwen35moe", "qwen3next"),
    "qwen_moe": ("qwen2moe", "qwen3moe"),
    "smollm3": ("smollm3",),
    "starcoder2": ("starcoder2",),
}


class _Architectures(Mapping[str, Architecture]):
    """Every architecture by its name; a lookup imports the file that declares it."""

    def __init__(self) -> None:
        self._files = {name: file for file, names in FILES.items() for name in names}

    def __getitem__(self, name: str) -> Architecture:
        declared: tuple[Architecture, ...] = _module(self._files[name]).ARCHITECTURES
        return next(one for one in declared if name in one.names)

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _module(file: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{file}")


ARCHITECTURES: Mapping[str, Architecture] = _Architectures()

# -- In transformers' checkpoints --


@cache
def families() -> tuple[Family, ...]:
    """The classes of transformers that trinity reads, of every file."""
    return tuple(family for file in FILES for family in getattr(_module(file), "FAMILIES", ()))


def families_of(architecture: str) -> tuple[Family, ...]:
    """The classes of transformers whose models have this architecture."""
    return tuple(
        family
        for family in families()
        if architecture in (*family.architectures.values(), family.with_experts)
    )


def refuse_speech(metadata: Mapping[str, object], source: str) -> None:
    """Raise UnsupportedError for a model of speech, which is run by other commands."""
    if is_speech(metadata):
        raise UnsupportedError(
            f"{source}: a Whisper model, which writes down speech: it runs with `trinity "
            "transcribe` and `trinity serve --speech-model`"
        )


def find_architecture(name: str, source: str, names: Collection[str] = ()) -> Architecture:
    """The architecture that a file with tensors ``names`` says that it has.

    Raises UnsupportedError, which lists those there are, and says which are near it and what no
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
    """Raises UnsupportedError for layers of another kind in a family that has one kind."""
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
    """The layers of a model that has tensors of these ``names``, which are not checked.

    Raises: UnsupportedError as ``find_architecture`` does; ConfigError for a configuration that the
    architecture cannot have, which names the key that is missing.
    """
    architecture = find_architecture(config.architecture, source, names)
    config = architecture.completed(config)
    for field, key in architecture.needs:
        if not getattr(config, field):
            raise ConfigError(
                f"{source}: {config.architecture}.{key} ({field}) is missing or 0, but "
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
    """The layers of a model whose file has tensors of these ``names`` and shapes.

    Raises: as ``make_decoder`` and ``Decoder.check`` do.
    """
    decoder = make_decoder(config, names, source)
    decoder.check(shape, source)
    return decoder


def check_architecture(provider: WeightProvider) -> None:
    """Check that the file's architecture is supported, before anything else of the file is read.

    Raises UnsupportedError as ``find_architecture`` does, and for a file without an architecture
    whose type or tensors are those of another kind of model.
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
    """Hold an open model's tensors against its configuration, of speech or of texts.

    Raises: UnsupportedError and ConfigError as ``decoder_of`` and ``speech_config`` do.
    """
    names = frozenset(provider.tensor_names())

    def shape(name: str) -> tuple[int, ...]:
        return provider.tensor(name).shape

    if is_speech(provider.metadata):
        check_tensors(speech_config(provider.metadata, provider.path), names, shape)
        return
    check_architecture(provider)  # before keys are missed that others do not have
    decoder_of(provider.config, names, shape, provider.path)


def read_model(values: Mapping[str, object], source: str) -> tuple[Family, HFConfig]:
    """The family and configuration of the object ``values`` of the file ``source``.

    Raises ConfigError for values that are missing, impossible or at odds; UnsupportedError for a
    class that is not known, listing those that are, and for what trinity cannot read.
    """
    from trinity.formats.huggingface.config import class_name_of, hf_config
    from trinity.formats.huggingface.values import shown

    named = values.get("_class_name")  # by diffusers
    if isinstance(named, str) and "architectures" not in values:
        found = other_model({}, class_name=named) or "a model of diffusers; trinity reads text"
        raise UnsupportedError(f"{source}: {found} (_class_name is {named[:60]!r})")
    class_name = class_name_of(values, source)
    for family in families():
        if class_name in family.class_names:
            return family, hf_config(values, source, family.terms)
        if class_name in family.wrappers:
            inner = values.get("text_config")
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"{source}: text_config is {shown(inner)}; expected the object that describes "
                    f"the part of a {class_name} that writes"
                )
            both = {**values, **inner, "architectures": [class_name]}
            return family, hf_config(both, source, family.terms)
    other = other_model({}, class_name=class_name)
    if other is not None:
        raise UnsupportedError(f"{source}: {other} (architectures names {class_name[:60]!r})")
    known = ", ".join(sorted(name for f in families() for name in (*f.class_names, *f.wrappers)))
    raise UnsupportedError(
        f"{source}: architectures names {class_name[:60]!r}; trinity reads {known}"
    )
