"""A Whisper directory in Hugging Face's format, as GGUF keys and tensors.

config.json, generation_config.json and preprocessor_config.json become keys; the checkpoint's
tensors get the names of ``formats/speech_config.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import numpy as np

from trinity.errors import UnsupportedError
from trinity.formats.directory_file import directory_file
from trinity.formats.huggingface.files import CONFIG, GENERATION_CONFIG, optional_object
from trinity.formats.huggingface.values import Values
from trinity.formats.json_object import read_json_object
from trinity.formats.other_models import SPEECH
from trinity.formats.speech_config import ACTIVATIONS, EPS, MOST_BANDS, MOST_POSITIONS

_PREPROCESSOR = "preprocessor_config.json"
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")
# An extra tensor that a checkpoint may have: the embedding again, as the output.
UNREAD = frozenset({"proj_out.weight"})
_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(.+)\.(weight|bias)")
_MODULES = {
    "self_attn_layer_norm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_o",
    "encoder_attn_layer_norm": "cross_attn_norm", "encoder_attn.q_proj": "cross_attn_q",
    "encoder_attn.k_proj": "cross_attn_k", "encoder_attn.v_proj": "cross_attn_v",
    "encoder_attn.out_proj": "cross_attn_o", "final_layer_norm": "ffn_norm",
    "fc1": "ffn_up", "fc2": "ffn_down",
}  # fmt: skip
_BESIDE_LAYERS = {
    "decoder.embed_tokens": "token_embd", "encoder.conv1": "enc.conv1d.1",
    "encoder.conv2": "enc.conv1d.2", "encoder.embed_positions": "enc.position_embd",
    "decoder.embed_positions": "dec.position_embd", "encoder.layer_norm": "enc.output_norm",
    "decoder.layer_norm": "dec.output_norm",
}  # fmt: skip


def is_whisper(files: Mapping[str, str]) -> bool:
    """Whether config.json, among ``files``, is a Whisper model's. Raises as its reader."""
    return optional_object(files, CONFIG).get("model_type") == "whisper"


def gguf_name(name: str) -> str | None:
    """Return GGUF's name of a checkpoint's tensor, or None for one that no such model has."""
    bare = name.removeprefix("model.")
    layer = _LAYER.fullmatch(bare)
    if layer is not None:
        module = _MODULES.get(layer[3])
        return module and f"{layer[1][:3]}.blk.{int(layer[2])}.{module}.{layer[4]}"
    stem, _, part = bare.rpartition(".")
    return f"{_BESIDE_LAYERS[stem]}.{part}" if stem in _BESIDE_LAYERS else None


def whisper_metadata(directory: str, files: Mapping[str, str], name: str) -> dict[str, object]:
    """Return the model's keys; of the tokenizer's only the end.

    Raises: ConfigError for an impossible value, UnsupportedError for other kinds of layers or
    features.
    """
    values = Values(read_json_object(files[CONFIG]), files[CONFIG])
    _check_fixed(values)
    vocab_size = values.size("vocab_size", "vocab_size")
    generation = optional_object(files, GENERATION_CONFIG)
    given = {key: value for key, value in generation.items() if value is not None}
    merged = Values({**values.values, **given}, files.get(GENERATION_CONFIG, files[CONFIG]))
    width, bands = values.size("d_model", "hidden_size"), _whole(values, "num_mel_bins", MOST_BANDS)
    _check_preprocessor(directory, bands)
    keys: dict[str, object] = {
        "general.architecture": SPEECH,
        "general.type": "model",
        "general.name": name,
        "vocab_size": vocab_size,
        **_stack(values, "encoder", "max_source_positions", width),
        "encoder.mels_count": bands,
        **_stack(values, "decoder", "max_target_positions", width),
        "decoder.attention.layer_norm_epsilon": EPS,
        "hidden_activation": _activation(values),
        "decoder_start_token_id": _whole(merged, "decoder_start_token_id", vocab_size - 1, 0),
        "max_initial_timestamp_index": _whole(merged, "max_initial_timestamp_index", 1500, 0, 50),
    }
    for key in ("suppress_tokens", "begin_suppress_tokens"):
        if ids := _ids(merged, key, vocab_size):
            keys[key] = np.array(ids, np.int32)
    if heads := _alignment_heads(merged, values):
        keys["alignment_heads"] = np.array(heads, np.int32)
    if isinstance(generation.get("is_multilingual"), bool):
        keys["multilingual"] = generation["is_multilingual"]
    if languages := _languages(generation):
        keys["languages"] = languages
    return {k if k.startswith("general.") else f"{SPEECH}.{k}": v for k, v in keys.items()}


def end_id(files: Mapping[str, str]) -> int:
    """Return the token that ends a text. Raises: ConfigError."""
    values = read_json_object(files[CONFIG])
    given = optional_object(files, GENERATION_CONFIG)
    key = "eos_token_id"
    source = files[GENERATION_CONFIG] if given.get(key) is not None else files[CONFIG]
    both = Values({key: given.get(key, values.get(key))}, source)
    rows = Values(values, files[CONFIG]).size("vocab_size", "vocab_size")
    return _whole(both, key, rows - 1, 0)


def _stack(values: Values, side: str, positions: str, width: int) -> dict[str, object]:
    return {
        f"{side}.context_length": _whole(values, positions, MOST_POSITIONS),
        f"{side}.embedding_length": width,
        f"{side}.block_count": values.size(f"{side}_layers", "num_layers"),
        f"{side}.feed_forward_length": values.size(f"{side}_ffn_dim", "intermediate_size"),
        f"{side}.attention.head_count": values.size(f"{side}_attention_heads", "num_heads"),
    }


def _check_fixed(values: Values) -> None:
    for key, wanted in {"scale_embedding": False, "tie_word_embeddings": True}.items():
        if values.flag(key, wanted) is not wanted:
            raise UnsupportedError(
                f"{values.source}: {key} is {not wanted}; trinity runs Whisper's models, where it "
                f"is {wanted}"
            )


def _check_preprocessor(directory: str, bands: int) -> None:
    path = directory_file(directory, _PREPROCESSOR)
    values = read_json_object(path) if os.path.lexists(path) else {}
    for key, wanted in {
        "sampling_rate": 16000, "n_fft": 400, "hop_length": 160, "feature_size": bands,
    }.items():  # fmt: skip
        if values.get(key) is not None and values[key] != wanted:
            raise UnsupportedError(
                f"{path}: {key} is {values[key]!r:.40}; this model's features have {wanted}"
            )


def _activation(values: Values) -> str:
    name = values.text("activation_function", "gelu")
    if name not in ACTIVATIONS:
        raise UnsupportedError(
            f"{values.source}: activation_function is {name!r:.40}; known are "
            f"{', '.join(ACTIVATIONS)}"
        )
    return name


def _whole(
    values: Values, key: str, largest: int, least: int = 1, default: int | None = None
) -> int:
    value = values.values.get(key)
    value = default if value is None else value
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= largest:
        return value
    raise values.error(key, f"must be a whole number from {least} to {largest}")


def _ids(values: Values, key: str, vocab_size: int) -> list[int]:
    tokens = values.values.get(key) or []
    if not isinstance(tokens, list) or len(tokens) > vocab_size:
        raise values.error(key, "must be a list of token ids")
    for token in tokens:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocab_size:
            raise values.error(key, f"has {token!r:.40}; expected token ids below {vocab_size}")
    return tokens


def _alignment_heads(values: Values, model: Values) -> list[int]:
    """Return layer, head, layer, head, ... of the decoder that ``model`` describes.

    None if one of them does not exist: distilled models with few layers contain the list of their
    teacher (kotoba-whisper-bilingual).
    """
    key = "alignment_heads"
    pairs = values.values.get(key) or []
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        raise values.error(key, "must be a list of pairs of a layer and a head")
    layers = model.size("decoder_layers", "num_layers")
    heads = model.size("decoder_attention_heads", "num_heads")
    if any(layer >= layers or head >= heads for layer, head in pairs):
        return []
    return [number for pair in pairs for number in pair]


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(
            isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in value
        )
    )


def _languages(generation: Mapping[str, object]) -> list[str]:
    """Return the codes of lang_to_id in the order of the ids."""
    listed = generation.get("lang_to_id")
    if not isinstance(listed, dict):
        return []
    codes = [
        (number, match[1])
        for name, number in listed.items()
        if isinstance(number, int) and (match := _LANGUAGE.fullmatch(name))
    ]
    return [code for _, code in sorted(codes)]
