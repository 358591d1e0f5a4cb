"""What a Whisper model's config.json, generation_config.json and preprocessor_config.json say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import LARGEST_INTEGERS
from trinity.formats.directory_file import directory_file
from trinity.formats.huggingface.files import (
    CONFIG,
    GENERATION_CONFIG,
    files_of_directory,
    optional_object,
)
from trinity.formats.huggingface.values import Values
from trinity.formats.json_object import read_json_object
from trinity.speech.resampling import RATE

_ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu"}
_MOST_BANDS, _MOST_POSITIONS = 1024, 1 << 16
EPS = 1e-5  # of PyTorch's LayerNorm


@dataclass(frozen=True, slots=True)
class Stack:
    """The layers of an encoder or a decoder."""

    layers: int
    heads: int
    inner: int
    positions: int


@dataclass(frozen=True, slots=True)
class SpeechConfig:
    """A model's sizes, and what its generation needs to know."""

    width: int
    vocab_size: int
    bands: int
    encoder: Stack
    decoder: Stack
    activation: str
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]
    start_id: int
    end_id: int
    latest_first_time: int
    source: str

    @property
    def frames(self) -> int:
        """Mel frames of a window: two for each position of the encoder."""
        return 2 * self.encoder.positions


def read_config(directory: str) -> SpeechConfig:
    """The configuration of the model in a directory.

    Raises: InputError where there is no config.json, UnsupportedError where it is of another
    model, ConfigError for a value that no such model has.
    """
    files = files_of_directory(directory)
    source = directory_file(directory, CONFIG)
    values = Values(read_json_object(source), source)
    kind = values.values.get("model_type")
    if kind != "whisper":
        raise UnsupportedError(
            f"{source}: a model of type {kind!r:.40}; speech is read by Whisper's models "
            "(model_type whisper): for texts use generate or chat"
        )
    _check_fixed(values)
    vocab_size = values.size("vocab_size", "vocab_size")
    width = values.size("d_model", "hidden_size")
    generation = optional_object(files, GENERATION_CONFIG)
    merged = Values({**values.values, **_given(generation)}, files.get(GENERATION_CONFIG, source))
    return SpeechConfig(
        width=width,
        vocab_size=vocab_size,
        bands=_whole(values, "num_mel_bins", _MOST_BANDS),
        encoder=_stack(values, "encoder", "max_source_positions", width),
        decoder=_stack(values, "decoder", "max_target_positions", width),
        activation=_activation(values),
        suppressed=_ids(merged, "suppress_tokens", vocab_size),
        suppressed_first=_ids(merged, "begin_suppress_tokens", vocab_size),
        start_id=_id(merged, "decoder_start_token_id", vocab_size),
        end_id=_id(merged, "eos_token_id", vocab_size),
        latest_first_time=_whole(merged, "max_initial_timestamp_index", 1500, 50, least=0),
        source=source,
    )


def check_preprocessor(directory: str, config: SpeechConfig) -> None:
    """Raise ConfigError, UnsupportedError where features of another kind are asked for."""
    name = "preprocessor_config.json"
    values = Values(optional_object({name: p} if (p := _there(directory, name)) else {}, name), p)
    for key, wanted in {
        "sampling_rate": RATE, "n_fft": 400, "hop_length": 160, "feature_size": config.bands,
    }.items():  # fmt: skip
        if values.has(key) and values.values[key] != wanted:
            raise UnsupportedError(
                f"{p}: {key} is {values.values[key]!r:.40}; this model's features have {wanted}"
            )


def _there(directory: str, name: str) -> str:
    import os

    path = directory_file(directory, name)
    return path if os.path.lexists(path) else ""


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}


def _check_fixed(values: Values) -> None:
    for key, wanted in {"scale_embedding": False, "tie_word_embeddings": True}.items():
        if values.flag(key, wanted) is not wanted:
            raise UnsupportedError(
                f"{values.source}: {key} is {not wanted}; trinity runs Whisper's models, where it "
                f"is {wanted}"
            )


def _activation(values: Values) -> str:
    name = values.text("activation_function", "gelu")
    if name not in _ACTIVATIONS:
        raise UnsupportedError(
            f"{values.source}: activation_function is {name!r:.40}; known are "
            f"{', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]


def _stack(values: Values, side: str, positions: str, width: int) -> Stack:
    heads = values.size(f"{side}_attention_heads", "num_heads")
    if width % heads:
        raise ConfigError(
            f"{values.source}: {side}_attention_heads is {heads}, which does not divide d_model, "
            f"{width}; download the file again"
        )
    return Stack(
        layers=values.size(f"{side}_layers", "num_layers"),
        heads=heads,
        inner=values.size(f"{side}_ffn_dim", "intermediate_size"),
        positions=_whole(values, positions, _MOST_POSITIONS),
    )


def _whole(
    values: Values, key: str, largest: int, default: int | None = None, least: int = 1
) -> int:
    value = values.values.get(key)
    value = default if value is None else value
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= largest:
        return value
    raise values.error(key, f"must be a whole number from {least} to {largest}")


def _id(values: Values, key: str, vocab_size: int) -> int:
    return _whole(values, key, vocab_size - 1, least=0)


def _ids(values: Values, key: str, vocab_size: int) -> tuple[int, ...]:
    found = values.values.get(key) or []
    if not isinstance(found, list) or len(found) > LARGEST_INTEGERS["vocab_size"]:
        raise values.error(key, "must be a list of token ids")
    for one in found:
        if not isinstance(one, int) or isinstance(one, bool) or not 0 <= one < vocab_size:
            raise ConfigError(
                f"{values.source}: {key} has {one!r:.40}; expected token ids below {vocab_size}"
            )
    return tuple(found)
