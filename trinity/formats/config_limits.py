"""Ranges of the numbers in a configuration, and limits of their products.

A file pays for a dimension with rows of its tensors, but a product of two dimensions, or a layer's
share of the cache, costs more than it takes in the file. So these are limited too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

import numpy as np

from trinity.config import ExpertConfig, Key, LatentConfig, ModelConfig, RopeScaling, SSMConfig
from trinity.errors import ConfigError

MAX_QUERY_WIDTH = 1 << 18  # num_heads * head_dim; Llama 405B has 16,384
MAX_CACHED_HEADS = 1 << 14  # num_layers * num_kv_heads: the cache has two entries for each
MAX_STATE_VALUES = 1 << 24  # ssm_inner_size * ssm_state_size; Nemotron-H 56B has 2 ** 22
MAX_LAYER_INPUTS = 1 << 18  # num_layers * per_layer_input_size; Gemma 4 E4B has 10,752
_HUGE = 1e300  # beyond every range; larger integers cannot be converted to float
# YaRN divides by the logarithm of the base.
SMALLEST_YARN_THETA = 1.001


@cache
def declared(holder: type) -> tuple[tuple[str, Key], ...]:
    """Return the fields of a configuration's class that have a GGUF key."""
    hints = get_type_hints(holder, include_extras=True)
    return tuple(
        (field.name, key)
        for field in fields(holder)
        for key in getattr(hints[field.name], "__metadata__", ())
        if isinstance(key, Key)
    )


# Field names in messages, and their declarations. The last ones are numbers that fields are
# computed from; those without a key occur only in config.json.
FIELDS: dict[str, Key] = {
    key.name or name: key
    for holder in (ModelConfig, RopeScaling, ExpertConfig, LatentConfig, SSMConfig)
    for name, key in declared(holder)
} | {
    "value_dim_swa": Key("attention.value_length_swa", high=1 << 16),
    "num_shared_experts": Key("expert_shared_count", high=1 << 8),
    "full_attention_interval": Key("full_attention_interval", high=1 << 10),
    "ssm_expand": Key(high=1 << 8),
    "indexer_top_k": Key("attention.indexer.top_k", high=1 << 20),
    "yarn_attn_factor": Key("rope.scaling.yarn_attn_factor", low=1e-6, high=1e6),
    "sparsity": Key(low=0.0, high=0.9999),
    "image_pixels": Key(high=1 << 31),
    "multiplier": Key(low=1e-9, high=1e6),
    "frequency_factor": Key(low=1e-3, high=1e31),  # 1e30 for pairs that do not rotate (Gemma 4)
}


# The parts of a configuration, and the field that shows that a file has one.
_PARTS: dict[str, tuple[type, str]] = {
    "experts": (ExpertConfig, "num_experts"),
    "latent": (LatentConfig, "kv_lora_rank"),
    "ssm": (SSMConfig, "ssm_state_size"),
}


def gguf_key(field: str) -> str:
    """Return the GGUF key of a field of ModelConfig; for a part, the key that shows it."""
    return FIELDS[_PARTS[field][1] if field in _PARTS else field].keys[0]


def examples(names: Collection[str], layers: int) -> dict[str, Any]:
    """Return the values that a small model with so many layers has for fields of ModelConfig."""
    parts = {name: _PARTS[name][0] for name in names if name in _PARTS}
    return {
        name: _repeated(key.example, layers)
        for name, key in declared(ModelConfig)
        if name in names and key.example is not None
    } | {name: part(**_part_example(part)) for name, part in parts.items()}


def _part_example(part: type) -> dict[str, object]:
    return {name: key.example for name, key in declared(part) if key.example is not None}


def _repeated(example: object, layers: int) -> object:
    return (example * layers)[:layers] if isinstance(example, tuple) else example


def gguf_keys(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace field names by their GGUF keys; other keys stay as they are."""
    return {
        FIELDS[name].keys[0] if name in FIELDS else name: value for name, value in values.items()
    }


def field_values(config: SSMConfig) -> dict[str, Any]:
    """Return the fields of a part of a configuration, with the names of FIELDS."""
    return {key.name or name: getattr(config, name) for name, key in declared(SSMConfig)}


def checked_integer(name: str, value: object, where: str, low: int | None = None) -> int:
    """Check that a value is a whole number in the field's range, or from ``low``, and return it.

    Raises ConfigError, whose message begins with ``where``: the file and the key.
    """
    least = int(FIELDS[name].low) if low is None else low
    most = int(FIELDS[name].high)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    raise ConfigError(
        f"{where} is {_shown(value)}; it must be a whole number from {least} to {most}"
    )


def checked_real(name: str, value: object, where: str) -> float:
    """Check that a value is a number in the field's range, and return it. Raises ConfigError."""
    low, high = FIELDS[name].low, FIELDS[name].high
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value) if abs(value) < _HUGE else _HUGE if value > 0 else -math.inf
        if low <= number <= high:  # false for NaN
            return number
    raise ConfigError(f"{where} is {_shown(value)}; it must be a number from {low:g} to {high:g}")


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {len(value)}"
    return f"{value!r:.80}"
