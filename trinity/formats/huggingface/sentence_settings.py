"""Read sentence-transformers' settings for texts: limit, prompts, lower case and dimensions.

Source: sentence_transformers 6.2: base/modules/transformer.py (Transformer.__init__, preprocess),
base/model.py (_parse_model_config), sentence_transformer/model.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats import text_rules as keys
from trinity.formats.huggingface.files import (
    SENTENCE_TRANSFORMERS,
    TOKENIZER_CONFIG,
    TRANSFORMER,
    optional_object,
)

# Settings of the module Transformer that do not change the vector of a text.
_HARMLESS = {
    "max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name",
    "unpad_inputs", "processing_kwargs", "processor_kwargs", "tokenizer_args", "model_kwargs",
    "model_args", "backend", "config_kwargs", "config_args", "trust_remote_code",
    "tokenizer_name_or_path", "message_format",
}  # fmt: skip
# Arguments that choose how the same values are computed.
_COMPUTES = {
    "torch_dtype", "dtype", "attn_implementation", "device_map", "low_cpu_mem_usage",
    "trust_remote_code", "add_pooling_layer", "use_safetensors", "unpad_inputs", "use_cache",
    "use_memory_efficient_attention", "revision", "code_revision", "token", "cache_dir",
}  # fmt: skip
_OF_TOKENIZER = {"model_max_length", "padding_side", "truncation_side", "use_fast", "padding"}
_OF_CALLS = {
    "max_length", "padding", "truncation", "return_tensors", "pad_to_multiple_of",
    "logits_to_keep", "return_attention_mask",
}  # fmt: skip
_COSINE = (None, "cosine")
_UNLIMITED = 10**9  # tokenizers without a limit have 10**30


def transformer_settings(files: Mapping[str, str]) -> dict[str, object]:
    """The settings of the module Transformer, from the first file of TRANSFORMER that exists.

    Raises: as ``read_json_object``.
    """
    return next((optional_object(files, name) for name in TRANSFORMER if name in files), {})


def lowers_case(files: Mapping[str, str]) -> bool:
    """Whether texts are lowercased before they are tokenized."""
    return transformer_settings(files).get("do_lower_case") is True


def setting_keys(files: Mapping[str, str], *, embeds: bool, unit: bool) -> dict[str, object]:
    """The settings as keys of ``trinity.formats.text_rules``.

    ``embeds``: the model computes embeddings; ``unit``: its modules end with Normalize. Raises
    ConfigError for malformed values, UnsupportedError for settings that trinity does not support.
    """
    settings = transformer_settings(files)
    source = next((files[name] for name in TRANSFORMER if name in files), "")
    if embeds:
        _check_transformer(settings, source)
    tokenizer = {
        **optional_object(files, TOKENIZER_CONFIG),
        **_object(settings, "tokenizer_args", source, _OF_TOKENIZER | _COMPUTES),
        **_object(settings, "processor_kwargs", source, _OF_TOKENIZER | _COMPUTES),
    }
    result: dict[str, object] = {}
    limits = [_limit(settings, "max_seq_length", source)]
    if limits[0] is None:
        limits = [_limit(tokenizer, "model_max_length", files.get(TOKENIZER_CONFIG, source))]
    calls = _object(settings, "processing_kwargs", source, None)
    limits.append(_limit(_object(calls, "text", source, _OF_CALLS), "max_length", source))
    if given := [limit for limit in limits if limit is not None and limit < _UNLIMITED]:
        result[keys.MAX_TOKENS] = min(given)
    if tokenizer.get("truncation_side") == "left":
        result[keys.TRUNCATION_SIDE] = "left"
    return result | (_model_keys(files, unit=unit) if embeds else {})


def _check_transformer(settings: Mapping[str, Any], source: str) -> None:
    """Raise UnsupportedError for a setting that would change vectors."""
    task = settings.get("transformer_task", "feature-extraction")
    modalities = settings.get("modality_config") or {}
    output = settings.get("module_output_name", "token_embeddings")
    unknown = [key for key in settings if key not in _HARMLESS and settings[key] is not None]
    if task != "feature-extraction":
        unknown.append("transformer_task")
    if "message" in modalities or output not in (None, "token_embeddings"):
        unknown.append("modality_config")  # texts would be written by the chat template
    for name in ("model_args", "model_kwargs", "config_args", "config_kwargs"):
        _object(settings, name, source, _COMPUTES)
    if unknown:
        raise UnsupportedError(
            f"{source}: {unknown[0]} is {settings.get(unknown[0])!r:.80}, which changes the "
            "vectors and is not supported"
        )


def _model_keys(files: Mapping[str, str], *, unit: bool) -> dict[str, object]:
    """Return prompts, similarity and dimensions of config_sentence_transformers.json."""
    values = optional_object(files, SENTENCE_TRANSFORMERS)
    source = files.get(SENTENCE_TRANSFORMERS, "")
    prompts = values.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise ConfigError(f"{source}: prompts is {prompts!r:.60}; expected an object of texts")
    result: dict[str, object] = {f"{keys.PROMPT}{name}": text for name, text in prompts.items()}
    default = values.get("default_prompt_name")
    if default is not None:
        if default not in prompts:
            raise ConfigError(
                f"{source}: default_prompt_name is {default!r:.60}, but there is no such prompt"
            )
        result[keys.DEFAULT_PROMPT] = default
    if not unit and values.get("similarity_fn_name") not in _COSINE:
        result[keys.NORMALIZE] = False  # their lengths count in a scalar product or a distance
    dimensions = _limit(values, "truncate_dim", source)
    return result if dimensions is None else {**result, keys.TRUNCATE_DIM: dimensions}


def _limit(values: Mapping[str, object], key: str, source: str) -> int | None:
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        raise ConfigError(f"{source}: {key} is {value!r:.40}; expected a positive integer")
    return int(value)


def _object(
    values: Mapping[str, object], key: str, source: str, known: set[str] | None
) -> dict[str, Any]:
    """Return the object of a key, {} if it is missing. Raises UnsupportedError for unknown keys."""
    entries = values.get(key) or {}
    if not isinstance(entries, dict):
        raise ConfigError(f"{source}: {key} is {entries!r:.40}; expected an object")
    for name in entries if known is not None else ():
        if name not in known and entries[name] is not None:  # type: ignore[operator]
            raise UnsupportedError(
                f"{source}: {key} has {name} = {entries[name]!r:.60}, which may change the vectors "
                "and is not supported"
            )
    return entries
