"""Summarize a file: a model, a LoRA adapter, an importance matrix, or a vocabulary."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Literal

from trinity.config import POOLING_RANK
from trinity.errors import TrinityError
from trinity.formats.adapters import CONFIG, MLX_WEIGHTS, PEFT_WEIGHTS
from trinity.formats.imatrix import CHUNK_COUNT, CHUNK_SIZE, DATASETS, SUMS, read_imatrix
from trinity.formats.json_object import read_json_object
from trinity.formats.other_models import is_speech
from trinity.formats.provider import WeightProvider
from trinity.formats.speech_config import speech_config
from trinity.models import ARCHITECTURES
from trinity.tools.file_type import file_type

Kind = Literal["model", "LoRA adapter", "importance matrix", "vocabulary", "image or audio encoder"]
MOST_LISTED, LONGEST_TEXT = 16, 256


@dataclass(frozen=True, slots=True)
class Contents:
    """The kind of a file, and ``facts`` about it by name, the most important first."""

    kind: Kind
    facts: Mapping[str, object] = field(default_factory=dict)


def contents(provider: WeightProvider) -> Contents:
    """Summarize an open file."""
    metadata, names = provider.metadata, provider.tensor_names()
    said = _fact(metadata.get("general.type"))
    if said == "imatrix" or (names and all(name.endswith((SUMS, ".counts")) for name in names)):
        weights = sum(name.endswith(SUMS) for name in names)
        return _matrix(
            weights, metadata.get(CHUNK_COUNT), metadata.get(CHUNK_SIZE), metadata.get(DATASETS)
        )
    architecture = _fact(metadata.get("general.architecture"))
    if said == "adapter":
        pairs = [name for name in names if name.endswith(".lora_a")]
        ranks = {provider.tensor(name).shape[0] for name in pairs}
        return Contents(
            "LoRA adapter",
            {
                "format": _fact(metadata.get("adapter.type")),
                "family": architecture,
                "base": _fact(metadata.get("general.base_model.0.name")),
                "weights": len(pairs),
                "rank": max(ranks, default=None),
                "alpha": _fact(metadata.get("adapter.lora.alpha")),
            },
        )
    if said == "mmproj" or architecture == "clip":
        return Contents("image or audio encoder", {"family": architecture})
    if not names:
        return Contents("vocabulary", _of_model(provider))
    return Contents("model", _of_model(provider))


def contents_without_weights(path: str) -> Contents | None:
    """Summarize a path that is not a model, or return None if it is unknown.

    These are adapters of PEFT or mlx-lm, and importance matrices of llama.cpp's older format.
    """
    try:
        if os.path.isdir(path) and os.path.isfile(os.path.join(path, CONFIG)):
            return _adapter_directory(path)
        if path.endswith((".dat", ".imatrix")) and os.path.isfile(path):
            imatrix = read_imatrix(path)
            return _matrix(
                len(imatrix.entries),
                imatrix.chunk_count,
                imatrix.chunk_size,
                list(imatrix.datasets),
            )
    except (TrinityError, OSError):
        return None
    return None


def files_of(path: str) -> list[str]:
    """Return the files that ``contents_without_weights`` describes."""
    if not os.path.isdir(path):
        return [path]
    names = (CONFIG, PEFT_WEIGHTS, MLX_WEIGHTS)
    paths = (os.path.join(path, name) for name in names)
    return [each for each in paths if os.path.isfile(each)]


def _fact(value: object) -> object:
    """Return a value that is short and plain, or its beginning; None for others."""
    if isinstance(value, list):
        return [_fact(item) for item in value[:MOST_LISTED]]
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if isinstance(value, int) else None


def _matrix(weights: int, chunks: object, size: object, datasets: object) -> Contents:
    return Contents(
        "importance matrix",
        {
            "weights": weights,
            "chunks": _fact(chunks),
            "tokens_per_chunk": _fact(size),
            "texts": _fact(datasets),
        },
    )


def _adapter_directory(path: str) -> Contents:
    config = read_json_object(os.path.join(path, CONFIG))
    if "peft_type" in config:
        facts: dict[str, object] = {
            "format": f"PEFT, {_fact(config['peft_type'])}",
            "base": _fact(config.get("base_model_name_or_path")),
            "rank": _fact(config.get("r")),
            "alpha": _fact(config.get("lora_alpha")),
            "modules": _fact(config.get("target_modules")),
        }
    else:
        parameters = config.get("lora_parameters")
        values = parameters if isinstance(parameters, dict) else {}
        facts = {
            "format": f"mlx-lm, {_fact(config.get('fine_tune_type', 'lora'))}",
            "base": _fact(config.get("model")),
            "rank": _fact(values.get("rank")),
            "scale": _fact(values.get("scale")),
        }
    return Contents("LoRA adapter", facts)


def _of_model(provider: WeightProvider) -> dict[str, object]:
    metadata = provider.metadata
    tensors = [provider.tensor(name) for name in provider.tensor_names()]
    facts: dict[str, object] = {
        "name": _fact(metadata.get("general.name")),
        "family": _fact(metadata.get("general.architecture")),
        "type": file_type(provider),
        "parameters": sum(prod(tensor.shape) for tensor in tensors) or None,
    }
    try:
        if is_speech(metadata):
            speech = speech_config(metadata, provider.path)
            return facts | {
                "encoder_layers": speech.encoder.layers,
                "decoder_layers": speech.decoder.layers,
                "hidden_size": speech.width,
                "mel_bands": speech.bands,
                "vocabulary": speech.vocab_size,
                "gives": "what is said",
            }
        config = provider.config
        facts |= {
            "layers": config.num_layers,
            "hidden_size": config.hidden_size,
            "vocabulary": config.vocab_size,
            "context_length": config.context_length,
        }
        defaults = provider.defaults
    except TrinityError:
        return facts
    own = "tokenizer.chat_template" in metadata
    return {
        **facts,
        "chat_template": own or bool(defaults.templates),
        "gives": _given(provider, str(metadata.get("general.architecture"))),
    }


def _given(provider: WeightProvider, name: str) -> str:
    """Return the value of a field, or the reason why it is missing."""
    architecture = ARCHITECTURES.get(name)
    pooling = provider.metadata.get(f"{name}.pooling_type")
    if architecture is None or not architecture.encodes:
        if pooling == POOLING_RANK and "cls.output.weight" in provider.tensor_names():
            return "ranks"
        return "text" if pooling in (None, 0) else "text, vectors"
    return "ranks" if "cls.output.weight" in provider.tensor_names() else "vectors"
