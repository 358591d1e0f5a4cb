"""Metadata to ModelConfig: names, defaults, and every contradiction that must be named."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from trinity.config import ModelConfig, RopeScaling
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.configuration import config_from_metadata

LLAMA: dict[str, object] = {
    "general.architecture": "llama",
    "general.name": "small",
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 172,
    "llama.block_count": 2,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 4,
    "llama.context_length": 128,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 512,
}
SHAPES: dict[str, tuple[int, ...]] = {"token_embd.weight": (512, 64), "output.weight": (512, 64)}


def config(
    changes: Mapping[str, object] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    num_tokens: int | None = None,
) -> ModelConfig:
    """The configuration of LLAMA with some keys changed; None removes a key."""
    metadata = {k: v for k, v in (LLAMA | dict(changes or {})).items() if v is not None}
    return config_from_metadata(metadata, shapes or {}, source="x.gguf", num_tokens=num_tokens)


EXPECTED = ModelConfig(
    architecture="llama",
    hidden_size=64,
    intermediate_size=172,
    num_layers=2,
    num_heads=8,
    num_kv_heads=4,
    head_dim=8,
    vocab_size=512,
    context_length=128,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    rope_dim=8,
    tie_word_embeddings=False,
    name="small",
)


def test_gguf_names_and_defaults() -> None:
    assert config(shapes=SHAPES) == EXPECTED
    assert config().tie_word_embeddings
    assert config({"llama.attention.head_count_kv": None}).num_kv_heads == 8


def test_unprefixed_names() -> None:
    metadata = {key.removeprefix("llama."): value for key, value in LLAMA.items()}
    assert config_from_metadata(metadata, SHAPES, source="x") == EXPECTED


@pytest.mark.parametrize("prefix", ["", "llama."])
def test_hugging_face_names(prefix: str) -> None:
    words = {
        "hidden_size": 64,
        "intermediate_size": 172,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": 512,
    }
    metadata: dict[str, object] = {"general.architecture": "llama", "general.name": "small"}
    metadata |= {prefix + key: value for key, value in words.items()}
    assert config_from_metadata(metadata, SHAPES, source="x") == EXPECTED


def test_the_prefixed_key_wins() -> None:
    found = config({"context_length": 1, "max_position_embeddings": 2})
    assert found.context_length == 128
    found = config({"llama.context_length": None, "context_length": 5, "max_seq_len": 2})
    assert found.context_length == 5


def test_head_sizes_of_their_own() -> None:
    found = config(
        {
            "llama.attention.key_length": 32,
            "llama.attention.value_length": 32,
            "llama.rope.dimension_count": 16,
            "llama.rope.freq_base": 500000.0,
            "llama.attention.sliding_window": 4096,
        }
    )
    assert (found.head_dim, found.rope_dim) == (32, 16)
    assert (found.rope_theta, found.sliding_window) == (500000.0, 4096)


def test_vocabulary_size() -> None:
    assert config(num_tokens=300).vocab_size == 300
    assert config(shapes={"token_embd.weight": (700, 64)}).vocab_size == 700
    with pytest.raises(ConfigError, match=r"llama\.vocab_size \(vocab_size\) is missing"):
        config({"llama.vocab_size": None})
    with pytest.raises(ConfigError, match=r"tokens is empty"):
        config(num_tokens=0)
    with pytest.raises(ConfigError, match="no array of strings"):
        config({"tokenizer.ggml.tokens": np.zeros(3, np.int8)})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, RopeScaling()),
        ({"type": "none", "factor": 4.0}, RopeScaling()),
        ({"type": "linear", "factor": 4.0}, RopeScaling("linear", 4.0)),
        ({"factor": 2.0}, RopeScaling("linear", 2.0)),
        ({"factor": 0.0}, RopeScaling()),
        ({"factor": 1.0}, RopeScaling()),
        ({"type": "yarn", "factor": 4.0}, RopeScaling("yarn", 4.0, 128)),
        (
            {
                "type": "yarn",
                "factor": 4.0,
                "original_context_length": 32,
                "attn_factor": 0.5,
                "yarn_ext_factor": 0.25,
                "yarn_beta_fast": 16.0,
                "yarn_beta_slow": 2.0,
            },
            RopeScaling("yarn", 4.0, 32, 0.5, 0.25, 16.0, 2.0),
        ),
    ],
)
def test_rope_scaling(changes: dict[str, object], expected: RopeScaling) -> None:
    found = config({f"llama.rope.scaling.{key}": value for key, value in changes.items()})
    assert found.rope_scaling == expected


def test_old_key_of_linear_scaling() -> None:
    assert config({"llama.rope.scale_linear": 8.0}).rope_scaling == RopeScaling("linear", 8.0)


@pytest.mark.parametrize("kind", ["longrope", "su", 3, ["linear"]])
def test_unknown_rope_scaling(kind: object) -> None:
    with pytest.raises(UnsupportedError, match=r"llama\.rope\.scaling\.type is"):
        config({"llama.rope.scaling.type": kind})


def test_per_layer_arrays() -> None:
    same = {"llama.attention.head_count_kv": np.array([4, 4], np.int32)}
    assert config(same).num_kv_heads == 4
    with pytest.raises(UnsupportedError, match="varies by layer"):
        config({"llama.attention.head_count_kv": np.array([4, 2], np.int32)})
    with pytest.raises(ConfigError, match=r"has 3 values, but llama\.block_count is 2"):
        config({"llama.attention.head_count": np.array([8, 8, 8], np.int32)})
    with pytest.raises(ConfigError, match="whole number"):
        config({"llama.attention.head_count": np.array([True, True])})
    with pytest.raises(ConfigError, match="whole number"):
        config({"llama.embedding_length": np.array([64], np.int32)})


def test_value_heads_of_another_size() -> None:
    with pytest.raises(UnsupportedError, match=r"value_length is 4 and .*key_length 8"):
        config({"llama.attention.key_length": 8, "llama.attention.value_length": 4})


@pytest.mark.parametrize("value", [None, 7, ""])
def test_no_architecture(value: object) -> None:
    with pytest.raises(ConfigError, match=r"general\.architecture"):
        config({"general.architecture": value})


REQUIRED = [key for key in LLAMA if key.startswith("llama.") and "kv" not in key]


@pytest.mark.parametrize("key", REQUIRED)
def test_missing_keys_are_named(key: str) -> None:
    with pytest.raises(ConfigError, match=f"x.gguf: {key} .*is missing"):
        config({key: None})


@pytest.mark.parametrize("key", [key for key in LLAMA if key.startswith("llama.")])
@pytest.mark.parametrize("value", [0, -1, 2**63, 2**64 - 1, "8", True, [8], math.nan, -math.inf])
def test_impossible_values(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"x.gguf: {key} "):
        config({key: value})


@pytest.mark.parametrize("key", ["rope.freq_base", "rope.scaling.factor"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, 1e30, 10**400, "x", False])
def test_impossible_rope(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"llama.{key} "):
        config({f"llama.{key}": value})


YARN = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama.rope.freq_base": 1.0}, "YaRN needs 1.001"),
        ({"llama.rope.scaling.original_context_length": 0}, "original_context_length .* 1 to"),
        ({"llama.rope.scaling.attn_factor": math.nan}, "attn_factor .* is nan"),
        ({"llama.rope.scaling.yarn_beta_fast": 1e-300}, "yarn_beta_fast .* is 1e-300"),
        ({"llama.rope.scaling.yarn_beta_slow": -1.0}, "yarn_beta_slow .* is -1"),
        ({"llama.rope.scaling.factor": 1e-9}, "factor .* is 1e-09"),
        ({"llama.rope.freq_base": 0.5}, "freq_base .* is 0.5"),
    ],
)
def test_numbers_that_rotations_cannot_be_made_of(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(YARN | changes)


def test_products_that_a_file_does_not_pay_for() -> None:
    with pytest.raises(ConfigError, match="262144 is the most that trinity runs of it times"):
        config({"llama.attention.head_count": 4096, "llama.attention.key_length": 128})
    with pytest.raises(ConfigError, match="16384 is the most that trinity runs of it times"):
        config({"llama.block_count": 1024, "llama.attention.head_count": 64,
                "llama.attention.head_count_kv": 64, "llama.attention.key_length": 2,
                "llama.rope.dimension_count": 2})  # fmt: skip
    with pytest.raises(ConfigError, match=r"general\.architecture is"):
        config({"general.architecture": "a" * 65})


@pytest.mark.parametrize(
    ("changes", "both"),
    [
        (
            {"llama.attention.head_count_kv": 3},
            ["head_count (num_heads) is 8", "head_count_kv (num_kv_heads), which is 3"],
        ),
        (
            {"llama.attention.head_count": 6, "llama.attention.head_count_kv": 3},
            ["llama.embedding_length (hidden_size) is 64", "(num_heads), which is 6"],
        ),
        ({"llama.rope.dimension_count": 10}, ["rope.dimension_count (rope_dim) is 10", "is 8"]),
        ({"llama.rope.dimension_count": 7}, ["rope_dim) is 7", "even"]),
    ],
)
def test_contradictions_name_both_sides(changes: dict[str, object], both: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        config(changes)
    for side in both:
        assert side in str(caught.value)
