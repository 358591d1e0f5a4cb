"""GGUF's keys that several families have in addition to the usual ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.config import (
    WindowTerms,
    class_name_of,
    every_layer_but_each_last_of,
)
from trinity.formats.huggingface.rope import rope_parameters, rope_type
from trinity.formats.huggingface.values import Values, shown

LONG_ROPE = ("longrope", "su")


def check_even_heads(config: ModelConfig, values: Values) -> None:
    """Raise ConfigError unless heads divide hidden_size evenly, in classes without a head_dim."""
    if config.num_heads * config.head_dim != config.hidden_size:
        raise ConfigError(
            f"{values.source}: head_dim {config.head_dim} x num_attention_heads {config.num_heads} "
            f"is not hidden_size {config.hidden_size}, as it must be in {class_name_of(values)}"
        )


def refuse_other(values: Values, expected: Mapping[str, tuple[object, ...]]) -> None:
    """Raise UnsupportedError for values that GGUF cannot express or trinity does not know."""
    given = values.values
    for key, known in expected.items():
        if given.get(key) not in known:
            raise UnsupportedError(
                f"{values.source}: {key} is {shown(given.get(key))}; of this class trinity reads "
                f"{' or '.join(str(value) for value in known if value is not None)}"
            )


def windowed_layers(config: ModelConfig) -> tuple[bool, ...]:
    """Return whether each layer of a configuration of config.json has the window."""
    pattern = config.sliding_window_pattern
    return pattern if isinstance(pattern, tuple) else ()


def window_keys(config: ModelConfig, terms: WindowTerms | None) -> dict[str, object]:
    """Return what GGUF has of a class's windows."""
    if terms is None or not terms.gguf:
        return {}
    keys: dict[str, object] = {"sliding_window": config.sliding_window}
    if terms.gguf == "size":
        return keys
    if not config.sliding_window:
        return {}
    usual = every_layer_but_each_last_of(terms.period, config.num_layers)
    if terms.gguf == "layers" or config.sliding_window_pattern != usual:
        keys["sliding_window_pattern"] = np.array(windowed_layers(config), np.bool_)
    return keys


def long_rope_keys(config: ModelConfig, values: Values) -> dict[str, object]:
    """Return LongRoPE's type and original context; llama.cpp reads its factors only with both."""
    if rope_type(values) not in LONG_ROPE:
        return {}
    key = "original_max_position_embeddings"
    holder = values if values.has(key) else rope_parameters(values)
    original = holder.size(key, "rope_original_context", config.context_length)
    return {"rope_type": "longrope", "rope_original_context": original}
