"""Metadata to ModelConfig, through one table, checked against the tensors.

Keys are tried in the order: architecture-prefixed GGUF key, the same unprefixed, Hugging Face's
name. Required keys and defaults are llama.cpp's (load_hparams).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig, RopeScaling
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import (
    LARGEST_INTEGERS,
    MAX_CACHED_HEADS,
    MAX_QUERY_WIDTH,
    REAL_RANGES,
    SMALLEST_YARN_THETA,
)
from trinity.formats.config_shapes import check_shapes


class _Field(NamedTuple):
    """GGUF keys without the architecture, and Hugging Face's names."""

    gguf: tuple[str, ...]
    hf: tuple[str, ...] = ()


_FIELDS: dict[str, _Field] = {
    "hidden_size": _Field(("embedding_length",), ("hidden_size", "n_embd", "dim")),
    "intermediate_size": _Field(("feed_forward_length",), ("intermediate_size",)),
    "num_layers": _Field(
        ("block_count",), ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
    ),
    "num_heads": _Field(("attention.head_count",), ("num_attention_heads", "num_heads", "n_heads")),
    "num_kv_heads": _Field(
        ("attention.head_count_kv",), ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
    ),
    "head_dim": _Field(("attention.key_length",), ("head_dim",)),
    "value_dim": _Field(("attention.value_length",)),
    "vocab_size": _Field(("vocab_size",), ("n_vocab",)),
    "context_length": _Field(("context_length",), ("max_position_embeddings", "max_seq_len")),
    "sliding_window": _Field(("attention.sliding_window",), ("sliding_window",)),
    "rms_norm_eps": _Field(("attention.layer_norm_rms_epsilon",), ("rms_norm_eps", "norm_eps")),
    "rope_theta": _Field(("rope.freq_base",), ("rope_theta",)),
    "rope_dim": _Field(("rope.dimension_count",), ("rope_dim",)),
    "rope_type": _Field(("rope.scaling.type",)),
    "rope_factor": _Field(("rope.scaling.factor", "rope.scale_linear")),
    "rope_original_context": _Field(
        ("rope.scaling.original_context_length",), ("original_max_position_embeddings",)
    ),
    "rope_attn_factor": _Field(("rope.scaling.attn_factor",)),
    "yarn_ext_factor": _Field(("rope.scaling.yarn_ext_factor",)),
    "yarn_beta_fast": _Field(("rope.scaling.yarn_beta_fast",)),
    "yarn_beta_slow": _Field(("rope.scaling.yarn_beta_slow",)),
}
_LONGEST_ARCHITECTURE = 64


def config_from_metadata(
    metadata: Mapping[str, object],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    source: str,
    num_tokens: int | None = None,
) -> ModelConfig:
    """The configuration that ``metadata`` describes.

    Shapes: ``shapes`` maps canonical tensor names to NumPy-order shapes; it may be empty.
    ``num_tokens`` is the vocabulary's length where the file has one. Raises ConfigError where a
    value is missing, impossible or at odds with another or with a tensor (both are named);
    UnsupportedError for head counts that vary by layer and for unknown RoPE scaling.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not 0 < len(architecture) <= _LONGEST_ARCHITECTURE:
        found = "is missing" if architecture is None else f"is {architecture!r:.60}"
        raise ConfigError(
            f"{source}: general.architecture {found}, so the file describes no model to run; "
            "convert the model again"
        )
    reader = _Reader(metadata, architecture, source)
    hidden_size = reader.integer("hidden_size")
    num_layers = reader.integer("num_layers")
    num_heads = reader.integer("num_heads", num_layers)
    num_kv_heads = reader.integer("num_kv_heads", num_layers, default=num_heads)
    if num_heads % num_kv_heads:
        raise reader.clash(
            "num_heads", num_heads, "num_kv_heads", num_kv_heads, "it must be a multiple of"
        )
    head_dim = _head_dim(reader, hidden_size, num_heads)
    _check_products(reader, num_layers, num_heads, num_kv_heads, head_dim)
    context_length = reader.integer("context_length")
    rope_theta = reader.real("rope_theta", default=10000.0)
    config = ModelConfig(
        architecture=architecture,
        hidden_size=hidden_size,
        intermediate_size=reader.integer("intermediate_size", num_layers),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        vocab_size=_vocab_size(reader, shapes, num_tokens),
        context_length=context_length,
        rms_norm_eps=reader.real("rms_norm_eps"),
        rope_theta=rope_theta,
        rope_dim=_rope_dim(reader, head_dim),
        rope_scaling=_rope_scaling(reader, context_length, rope_theta),
        tie_word_embeddings="output.weight" not in shapes,
        sliding_window=reader.integer("sliding_window", default=0, smallest=0),
        name=reader.text("general.name"),
    )
    check_shapes(config, shapes, source)
    return config


class _Reader:
    """Looks fields up and checks each one by itself."""

    def __init__(self, metadata: Mapping[str, object], architecture: str, source: str) -> None:
        self.metadata = metadata
        self._architecture = architecture
        self.source = source

    def key(self, name: str) -> str:
        """The key that gives field ``name``: the first that exists, else the preferred one."""
        field = _FIELDS[name]
        prefix = f"{self._architecture}."
        keys = [prefix + key for key in field.gguf] + [*field.gguf, *field.hf]
        keys += [prefix + key for key in field.hf]
        return next((key for key in keys if key in self.metadata), keys[0])

    def error(self, name: str, what: str) -> ConfigError:
        """A ConfigError about field ``name``."""
        return ConfigError(f"{self.source}: {self.key(name)} ({name}) {what}")

    def clash(
        self, name: str, value: object, other: str, other_value: object, relation: str
    ) -> ConfigError:
        """A ConfigError about two fields that exclude each other."""
        return self.error(
            name,
            f"is {value}, but {relation} {self.key(other)} ({other}), which is {other_value}; "
            "the file's metadata is wrong: convert the model again",
        )

    def text(self, key: str) -> str:
        """A string under exactly ``key``, or an empty one."""
        value = self.metadata.get(key, "")
        return value if isinstance(value, str) else ""

    def integer(
        self, name: str, num_layers: int = 0, *, default: int | None = None, smallest: int = 1
    ) -> int:
        """A whole number from ``smallest`` to the field's largest.

        With ``num_layers`` it may also be an array of one number for each layer, all equal.
        """
        value = self.value(name, default)
        if num_layers and isinstance(value, np.ndarray):
            value = self._same_for_all_layers(name, value, num_layers)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"is {_shown(value)}; a whole number is expected")
        largest = LARGEST_INTEGERS[name]
        if not smallest <= value <= largest:
            raise self.error(name, f"is {_shown(value)}; it must be {smallest} to {largest}")
        return value

    def real(self, name: str, *, default: float | None = None) -> float:
        """A number within the field's range."""
        value = self.value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"is {_shown(value)}; a number is expected")
        smallest, largest = REAL_RANGES[name]
        if not smallest <= value <= largest:  # also NaN
            raise self.error(name, f"is {_shown(value)}; it must be {smallest:g} to {largest:g}")
        return float(value)

    def is_set(self, name: str) -> bool:
        """True where any of the field's keys exists."""
        return self.key(name) in self.metadata

    def value(self, name: str, default: float | None = None) -> object:
        """What the file has for field ``name``, unchecked, or ``default``."""
        key = self.key(name)
        if key in self.metadata:
            return self.metadata[key]
        if default is None:
            field = _FIELDS[name]
            others = ", ".join([*field.gguf, *field.hf])
            raise self.error(name, f"is missing, and so is each of {others}; convert again")
        return default

    def _same_for_all_layers(
        self, name: str, values: NDArray[np.generic], num_layers: int
    ) -> object:
        if len(values) != num_layers:
            raise self.error(
                name, f"has {len(values)} values, but {self.key('num_layers')} is {num_layers}"
            )
        if (values != values[0]).any():
            raise UnsupportedError(
                f"{self.source}: {self.key(name)} ({name}) varies by layer ({_shown(values)}); "
                "trinity runs models whose layers are alike"
            )
        return values[0].item()


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray | list):
        return f"an array of {len(value)}"
    return f"{value!r:.60}"


def _head_dim(reader: _Reader, hidden_size: int, num_heads: int) -> int:
    if reader.is_set("head_dim"):
        head_dim = reader.integer("head_dim")
    elif hidden_size % num_heads:
        raise reader.clash(
            "hidden_size", hidden_size, "num_heads", num_heads, "it must be a multiple of"
        )
    else:
        head_dim = hidden_size // num_heads
    value_dim = reader.integer("value_dim", default=head_dim)
    if value_dim != head_dim:
        raise UnsupportedError(
            f"{reader.source}: {reader.key('value_dim')} is {value_dim} and "
            f"{reader.key('head_dim')} {head_dim}; trinity runs models where they are equal"
        )
    return head_dim


def _check_products(
    reader: _Reader, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int
) -> None:
    if num_heads * head_dim > MAX_QUERY_WIDTH:
        relation = f"{MAX_QUERY_WIDTH} is the most that trinity runs of it times"
        raise reader.clash("num_heads", num_heads, "head_dim", head_dim, relation)
    if num_layers * num_kv_heads > MAX_CACHED_HEADS:
        relation = f"{MAX_CACHED_HEADS} is the most that trinity runs of it times"
        raise reader.clash("num_layers", num_layers, "num_kv_heads", num_kv_heads, relation)


def _rope_dim(reader: _Reader, head_dim: int) -> int:
    rope_dim = reader.integer("rope_dim", default=head_dim)
    if rope_dim > head_dim:
        raise reader.clash("rope_dim", rope_dim, "head_dim", head_dim, "it may not exceed")
    if rope_dim % 2:
        raise reader.error("rope_dim", f"is {rope_dim}; rotation needs an even number")
    return rope_dim


def _vocab_size(
    reader: _Reader, shapes: Mapping[str, tuple[int, ...]], num_tokens: int | None
) -> int:
    """The vocabulary's length, else the embedding's rows, else the informational key."""
    if num_tokens is None and "tokenizer.ggml.tokens" in reader.metadata:
        raise ConfigError(
            f"{reader.source}: tokenizer.ggml.tokens is no array of strings; convert again"
        )
    if num_tokens is not None:
        if num_tokens == 0:
            raise ConfigError(f"{reader.source}: tokenizer.ggml.tokens is empty; convert again")
        return num_tokens
    embedding = shapes.get("token_embd.weight", ())
    return embedding[0] if len(embedding) == 2 else reader.integer("vocab_size")


def _rope_scaling(reader: _Reader, context_length: int, rope_theta: float) -> RopeScaling:
    """Llama 3's scaling is the tensor rope_freqs.weight and has no key."""
    kind = reader.value("rope_type") if reader.is_set("rope_type") else "linear"
    if not isinstance(kind, str) or kind not in ("none", "linear", "yarn"):
        raise UnsupportedError(
            f"{reader.source}: {reader.key('rope_type')} is {_shown(kind)}; "
            "trinity knows none, linear and yarn"
        )
    declared = reader.value("rope_factor", default=1.0)
    if isinstance(declared, float) and declared == 0.0:  # means no scaling, as in llama.cpp
        factor = 1.0
    else:
        factor = reader.real("rope_factor", default=1.0)
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return RopeScaling()
    if kind == "linear":
        return RopeScaling(type="linear", factor=factor)
    if rope_theta < SMALLEST_YARN_THETA:
        raise reader.error("rope_theta", f"is {rope_theta:g}; YaRN needs {SMALLEST_YARN_THETA:g}")
    return RopeScaling(
        type="yarn",
        factor=factor,
        original_context_length=reader.integer("rope_original_context", default=context_length),
        attn_factor=reader.real("rope_attn_factor", default=1.0),
        yarn_ext_factor=reader.real("yarn_ext_factor", default=1.0),
        yarn_beta_fast=reader.real("yarn_beta_fast", default=32.0),
        yarn_beta_slow=reader.real("yarn_beta_slow", default=1.0),
    )
