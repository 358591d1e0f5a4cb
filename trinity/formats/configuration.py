"""Convert metadata to ModelConfig.

Required keys and defaults are those of llama.cpp's load_hparams. ``config_reader.py`` and
``config_limits.py`` check each key separately; this module checks that the numbers agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from trinity.config import ExpertConfig, ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import (
    MAX_CACHED_HEADS,
    MAX_LAYER_INPUTS,
    MAX_QUERY_WIDTH,
    checked_integer,
    declared,
)
from trinity.formats.config_reader import ConfigReader, shown
from trinity.formats.expert_keys import read_experts, read_latent
from trinity.formats.other_models import is_speech
from trinity.formats.rope_keys import (
    ntk_base,
    read_rope_dim,
    read_rope_dim_swa,
    read_rope_scaling,
    read_rope_sections,
)
from trinity.formats.ssm_keys import read_kinds, read_recurrent_layers, read_ssm

_LONGEST_ARCHITECTURE, _LONGEST_NAME = 64, 256


def is_text(value: object, text: str) -> bool:
    """Whether a key's value is that text; the value may be an array."""
    return isinstance(value, str) and value == text


def check_is_model(metadata: Mapping[str, object], source: str) -> None:
    """Raise UnsupportedError for an adapter, whose file names the architecture of its model."""
    if is_text(metadata.get("general.type"), "adapter"):
        raise UnsupportedError(
            f"{source}: the file is an adapter, not a model; load the model that it belongs to "
            "with lora=[file] (--lora FILE)"
        )


def config_from_metadata(
    metadata: Mapping[str, object],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    source: str,
    num_tokens: int | None = None,
) -> ModelConfig:
    """Return the configuration that ``metadata`` describes.

    ``shapes`` maps canonical tensor names to shapes in NumPy's order and may be empty;
    trinity.models checks whether the tensors fit. ``num_tokens`` is the length of the vocabulary if
    the file has one. Raises ConfigError if a value is missing, impossible or contradicts another
    one or a tensor; UnsupportedError for models without feed-forward, and unknown RoPE scaling.
    """
    check_is_model(metadata, source)
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not 0 < len(architecture) <= _LONGEST_ARCHITECTURE:
        state = "is missing" if architecture is None else f"is {shown(architecture)}"
        raise ConfigError(
            f"{source}: general.architecture {state}, so the file does not describe a model; "
            "convert the model again"
        )
    # In a model of two stacks it is the decoder.
    prefix = f"{architecture}.decoder" if is_speech(metadata) else architecture
    reader = ConfigReader(metadata, prefix, source)
    hidden_size = reader.integer("hidden_size")
    num_layers = reader.integer("num_layers")
    nextn_layers = reader.integer("nextn_layers", default=0, smallest=0)
    if nextn_layers >= num_layers:
        raise reader.clash(
            "nextn_layers", nextn_layers, "num_layers", num_layers, "must be less than"
        )
    num_heads = num_kv_heads = head_dim = value_dim = 0
    layer_heads: tuple[int, ...] = ()
    layer_kv_heads: tuple[int, ...] = ()
    attends = not _is_attention_free(reader)
    if attends:
        num_heads, layer_heads = reader.by_layer("num_heads", num_layers)
        num_kv_heads, layer_kv_heads = num_heads, layer_heads
        if reader.is_set("num_kv_heads"):
            num_kv_heads, layer_kv_heads = reader.by_layer("num_kv_heads", num_layers)
        _check_heads(reader, layer_heads or (num_heads,), layer_kv_heads or (num_kv_heads,))
        head_dim = _head_dim(reader, hidden_size, num_heads)
        value_dim = reader.integer("value_dim", default=head_dim)
    head_dim_swa = _head_dim_swa(reader)
    _check_widths(
        reader,
        num_heads,
        {"head_dim": head_dim, "value_dim": value_dim, "head_dim_swa": head_dim_swa},
    )
    _check_products(reader, num_layers, "num_kv_heads", num_kv_heads, MAX_CACHED_HEADS)
    per_layer_input_size = reader.integer("per_layer_input_size", default=0, smallest=0)
    _check_products(
        reader, num_layers, "per_layer_input_size", per_layer_input_size, MAX_LAYER_INPUTS
    )
    experts = read_experts(reader, num_layers)
    intermediate_size, layer_intermediate_sizes = _intermediate_sizes(reader, num_layers, experts)
    rope_dim = read_rope_dim(reader, head_dim) if attends else 0
    context_length = reader.integer("context_length")
    rope_theta = reader.real("rope_theta", default=10000.0)
    rope_alpha = reader.real_or_none("rope_alpha")
    if rope_alpha:
        rope_theta = ntk_base(rope_theta, rope_alpha, head_dim)
    sliding_window = None
    if reader.is_set("sliding_window"):
        sliding_window = reader.integer("sliding_window", smallest=0)
    read: dict[str, Any] = {
        "architecture": architecture,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_layers": num_layers - nextn_layers,
        "nextn_layers": nextn_layers,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "vocab_size": _vocab_size(reader, shapes, num_tokens),
        "context_length": _attended(reader, context_length),
        "rms_norm_eps": reader.real("rms_norm_eps"),
        "rms_norms": not reader.key("rms_norm_eps").endswith("layer_norm_epsilon"),
        "rope_theta": rope_theta,
        "rope_alpha": rope_alpha,
        "rope_dim": rope_dim,
        "rope_sections": read_rope_sections(reader, rope_dim),
        "deepstack_layers": reader.integer("deepstack_layers", default=0, smallest=0),
        "rope_scaling": read_rope_scaling(reader, context_length, rope_theta, shapes),
        "tie_word_embeddings": "output.weight" not in shapes,
        "sliding_window": sliding_window,
        "sliding_window_pattern": _window_pattern(reader, num_layers, sliding_window),
        "head_dim_swa": head_dim_swa,
        "rope_dim_swa": read_rope_dim_swa(reader, head_dim, head_dim_swa),
        "layer_heads": layer_heads[: num_layers - nextn_layers],
        "layer_kv_heads": layer_kv_heads[: num_layers - nextn_layers],
        "gates_elements": _gates_elements(shapes, (layer_heads or (num_heads,))[0], value_dim),
        "layer_intermediate_sizes": layer_intermediate_sizes[: num_layers - nextn_layers],
        "value_dim": value_dim if value_dim != head_dim else 0,
        "shared_kv_layers": _shared_kv_layers(reader, num_layers),
        "per_layer_input_size": per_layer_input_size,
        "experts": experts,
        "latent": read_latent(reader, num_heads, num_kv_heads, head_dim, value_dim, rope_dim),
        "ssm": read_ssm(reader),
        "recurrent_layers": read_recurrent_layers(reader, num_layers)[: num_layers - nextn_layers],
        "rope_layers": read_kinds(reader, "rope_layers", num_layers),
        "name": reader.text("general.name")[:_LONGEST_NAME],
    }
    defaults = {field.name: field.default for field in fields(ModelConfig)}
    for name, _ in declared(ModelConfig):
        if name in read:
            continue
        if defaults[name] == ():
            read[name] = reader.reals_of_layers(name, num_layers)
        else:  # nothing else depends on it
            read[name] = reader.plain(name, defaults[name])
    return ModelConfig(**read)


def _is_attention_free(reader: ConfigReader) -> bool:
    """Whether no layer has attention: a model of Mamba or RWKV, whose file says 0 heads."""
    recurrent = reader.is_set("ssm_state_size") or reader.is_set("wkv_head_size")
    return recurrent and _is_zero(reader, "num_heads")


def _is_zero(reader: ConfigReader, name: str) -> bool:
    """Whether a number is 0 or missing."""
    value = reader.value(name, default=0)
    return type(value) is int and value == 0


def _check_heads(
    reader: ConfigReader, layer_heads: tuple[int, ...], layer_kv_heads: tuple[int, ...]
) -> None:
    """Raise ConfigError unless each layer's query heads share its key heads evenly."""
    layers = max(len(layer_heads), len(layer_kv_heads))
    for heads, kv_heads in zip(
        layer_heads * (layers // len(layer_heads)),
        layer_kv_heads * (layers // len(layer_kv_heads)),
        strict=True,
    ):
        checked_integer("num_heads", heads, f"{reader.source}: {reader.key('num_heads')}")
        if kv_heads and heads % kv_heads:
            raise reader.clash(
                "num_heads", heads, "num_kv_heads", kv_heads, "it must be a multiple of"
            )


def _gates_elements(shapes: Mapping[str, tuple[int, ...]], heads: int, value_dim: int) -> bool:
    """Whether the gate of attention has a value for each result; only its shape says so."""
    rows = shapes.get("blk.0.attn_gate.weight", ())[:1]
    return rows == (heads * value_dim,) and value_dim > 1


def _head_dim(reader: ConfigReader, hidden_size: int, num_heads: int) -> int:
    if reader.is_set("head_dim"):
        return reader.integer("head_dim")
    if hidden_size % num_heads:
        raise reader.clash(
            "hidden_size", hidden_size, "num_heads", num_heads, "it must be a multiple of"
        )
    return hidden_size // num_heads


def _head_dim_swa(reader: ConfigReader) -> int:
    """Return the head size of layers with a window, or 0 if the file gives none."""
    if not (reader.is_set("head_dim_swa") or reader.is_set("value_dim_swa")):
        return 0
    head_dim = reader.integer("head_dim_swa")
    value_dim = reader.integer("value_dim_swa", default=head_dim)
    if value_dim != head_dim:
        raise UnsupportedError(
            f"{reader.source}: {reader.key('value_dim_swa')} is {value_dim} and "
            f"{reader.key('head_dim_swa')} is {head_dim}; only equal values are supported"
        )
    return head_dim


def _check_widths(reader: ConfigReader, num_heads: int, sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        if num_heads * size > MAX_QUERY_WIDTH:
            relation = f"{MAX_QUERY_WIDTH} is trinity's limit for the product with"
            raise reader.clash("num_heads", num_heads, name, size, relation)


def _check_products(
    reader: ConfigReader, num_layers: int, name: str, size: int, largest: int
) -> None:
    if num_layers * size > largest:
        relation = f"{largest} is trinity's limit for the product with"
        raise reader.clash("num_layers", num_layers, name, size, relation)


def _intermediate_sizes(
    reader: ConfigReader, num_layers: int, experts: ExpertConfig | None
) -> tuple[int, tuple[int, ...]]:
    """Return the sizes of the dense feed-forward; 0 if a model of experts has none."""
    may_lack = experts is not None and experts.intermediate_size and not experts.first_dense_layers
    if may_lack and not reader.is_set("intermediate_size"):
        return 0, ()
    if _is_attention_free(reader) and _is_zero(reader, "intermediate_size"):
        return 0, ()
    return reader.by_layer("intermediate_size", num_layers)


def _vocab_size(
    reader: ConfigReader, shapes: Mapping[str, tuple[int, ...]], num_tokens: int | None
) -> int:
    """Return the vocabulary's length, else the embedding's rows, else the informational key."""
    if num_tokens is None and "tokenizer.ggml.tokens" in reader.metadata:
        raise ConfigError(
            f"{reader.source}: tokenizer.ggml.tokens is not an array of strings; convert the "
            "model again"
        )
    if num_tokens is not None:
        if num_tokens == 0:
            raise ConfigError(
                f"{reader.source}: tokenizer.ggml.tokens is empty; convert the model again"
            )
        return num_tokens
    embedding = shapes.get("token_embd.weight", ())
    return embedding[0] if len(embedding) == 2 else reader.integer("vocab_size")


def _window_pattern(
    reader: ConfigReader, num_layers: int, sliding_window: int | None
) -> int | tuple[bool, ...]:
    """Return the period of layers with a window, or for each layer whether it has one."""
    name = "sliding_window_pattern"
    value = reader.value(name, default=0)
    if not isinstance(value, np.ndarray):
        return reader.integer(name, default=0, smallest=0)
    if value.dtype != np.bool_ or len(value) != num_layers:
        raise reader.error(
            name,
            f"is {shown(value)} of {value.dtype.name}; expected one bool for each of {num_layers} "
            f"layers ({reader.key('num_layers')}), or a whole number",
        )
    if value.any() and not sliding_window:
        windowed = int(value.argmax())
        raise reader.clash(
            name,
            f"true for layer {windowed}",
            "sliding_window",
            sliding_window,
            "such a layer needs",
        )
    return tuple(map(bool, value))


def _attended(reader: ConfigReader, context_length: int) -> int:
    """Return the context within which tokens attend to all keys: an indexer chooses this many."""
    if not reader.is_set("indexer_top_k"):
        return context_length
    return min(context_length, reader.integer("indexer_top_k"))


def _shared_kv_layers(reader: ConfigReader, num_layers: int) -> int:
    shared = reader.integer("shared_kv_layers", default=0, smallest=0)
    if shared >= num_layers:
        raise reader.clash(
            "shared_kv_layers", shared, "num_layers", num_layers, "must be less than"
        )
    return shared
