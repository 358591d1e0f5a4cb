"""GGUF metadata to ModelConfig: names, defaults, and contradictions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from trinity.config import ExpertConfig, LatentConfig, ModelConfig, RopeScaling
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.configuration import config_from_metadata
from trinity.models import make_decoder

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
    """Return the configuration of LLAMA with some keys changed; None removes a key."""
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
    with pytest.raises(ConfigError, match="not an array of strings"):
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
                "yarn_log_multiplier": 0.125,
            },
            RopeScaling("yarn", 4.0, 32, 0.5, 0.25, 16.0, 2.0, 0.125),
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
    assert config(same) == config()
    found = config(
        {
            "llama.attention.head_count_kv": np.array([2, 4], np.int32),
            "llama.feed_forward_length": np.array([172, 64], np.int32),
        }
    )
    assert (found.num_kv_heads, found.layer_kv_heads) == (4, (2, 4))
    assert [found.kv_heads_of(layer) for layer in range(2)] == [2, 4]
    assert (found.intermediate_size, found.layer_intermediate_sizes) == (172, (172, 64))
    assert [found.intermediate_size_of(layer) for layer in range(2)] == [172, 64]
    without = config({"llama.attention.head_count_kv": np.array([0, 0], np.int32)})
    assert [without.kv_heads_of(layer) for layer in range(2)] == [0, 0]


@pytest.mark.parametrize(
    ("key", "values", "error", "message"),
    [
        ("attention.head_count", [8, 0], ConfigError, "it must be a whole number from 1 to"),
        ("attention.head_count", [8, 6], ConfigError, "(num_heads) is 6, but it must be a mult"),
        ("attention.head_count", [8, 8, 8], ConfigError, "has 3 values, but llama.block_count is"),
        ("attention.head_count", [True, True], ConfigError, "whole number"),
        ("attention.head_count_kv", [4], ConfigError, "has 1 values, but llama.block_count is 2"),
        ("attention.head_count_kv", [4, 3], ConfigError, "(num_kv_heads), which is 3"),
        (
            "attention.head_count_kv",
            [4, -4],
            ConfigError,
            "is -4; it must be a whole number from 0 to",
        ),
        ("attention.head_count", [0, 0], ConfigError, "it must be a whole number from 1 to"),
        ("attention.head_count_kv", [4.0, 2.0], ConfigError, "whole number"),
        (
            "feed_forward_length",
            [172, 1 << 30],
            ConfigError,
            "it must be a whole number from 0 to 1048576",
        ),
        ("feed_forward_length", [], ConfigError, "has 0 values, but llama.block_count is 2"),
        ("embedding_length", [64], ConfigError, "whole number"),
    ],
)
def test_arrays_that_are_refused(
    key: str, values: list[object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        config({f"llama.{key}": np.array(values)})
    assert message in str(caught.value)
    assert f"llama.{key.removesuffix('_kv')}" in str(caught.value)


def test_value_heads_of_another_size() -> None:
    sizes = {"llama.attention.key_length": 8, "llama.attention.value_length": 4}
    assert config(sizes).value_dim == 4
    assert config(sizes | {"llama.attention.value_length": 8}).value_dim == 0


def test_epsilon_of_norms_with_a_mean() -> None:
    found = config(
        {
            "llama.attention.layer_norm_rms_epsilon": None,
            "llama.attention.layer_norm_epsilon": 1e-3,
        }
    )
    assert found.rms_norm_eps == 1e-3
    assert config({"llama.attention.layer_norm_epsilon": 1e-3}).rms_norm_eps == 1e-5


SCALES = {
    "attention.scale": "attention_scale",
    "attn_logit_softcapping": "attn_logit_softcap",
    "final_logit_softcapping": "final_logit_softcap",
    "embedding_scale": "embedding_scale",
    "residual_scale": "residual_scale",
    "logit_scale": "logit_scale",
    "attention.temperature_scale": "temperature_scale",
}


@pytest.mark.parametrize(("key", "field"), SCALES.items())
def test_constants(key: str, field: str) -> None:
    assert getattr(config(), field) == (None if "softcap" in field else 0.0)
    assert getattr(config({f"llama.{key}": 0.0}), field) == 0.0
    assert getattr(config({f"llama.{key}": 0.25}), field) == 0.25
    for value in (-0.25, math.nan, math.inf, 1e-30, "1", True):
        with pytest.raises(ConfigError, match=rf"llama\.{key} \({field}\) is"):
            config({f"llama.{key}": value})


def test_windowed_layers_of_their_own_sizes() -> None:
    found = config(
        {
            "llama.attention.sliding_window": 16,
            "llama.attention.sliding_window_pattern": np.array([True, False]),
            "llama.attention.key_length_swa": 4,
            "llama.attention.value_length_swa": 4,
            "llama.rope.freq_base_swa": 5e4,
        }
    )
    assert found.sliding_window_pattern == (True, False)
    assert [found.window_of(layer, 1) for layer in range(2)] == [16, 0]
    assert (found.head_dim_swa, found.rope_dim_swa, found.rope_theta_swa) == (4, 4, 5e4)
    assert config({"llama.rope.dimension_count_swa": 6}).rope_dim_swa == 6
    with pytest.raises(UnsupportedError, match=r"value_length_swa is 8 and .*key_length_swa is 4"):
        config({"llama.attention.key_length_swa": 4, "llama.attention.value_length_swa": 8})


def test_positions_that_are_not_rotated() -> None:
    assert config().rope_finetuned
    assert config({"llama.rope.scaling.finetuned": True}).rope_finetuned
    assert not config({"llama.rope.scaling.finetuned": False}).rope_finetuned


EXPERTS: dict[str, object] = {"llama.expert_count": 8, "llama.expert_used_count": 2}


def test_experts() -> None:
    assert config({"llama.expert_count": 0, "llama.expert_used_count": 0}).experts is None
    assert config(EXPERTS).experts == ExpertConfig(8, 2, 0)
    found = config(
        EXPERTS
        | {
            "llama.expert_feed_forward_length": 32,
            "llama.expert_shared_count": 3,
            "llama.leading_dense_block_count": 1,
            "llama.expert_gating_func": 2,
            "llama.expert_weights_norm": True,
            "llama.expert_weights_scale": 2.5,
            "llama.expert_group_count": 4,
            "llama.expert_group_used_count": 2,
        }
    )
    assert found.experts == ExpertConfig(8, 2, 32, 96, 1, 1, "sigmoid", True, 2.5, 4, 2)
    shared = config(EXPERTS | {"llama.expert_shared_feed_forward_length": 48}).experts
    assert shared is not None
    assert shared.shared_intermediate_size == 48
    one_group = config(EXPERTS | {"llama.expert_group_count": 1}).experts
    assert one_group == ExpertConfig(8, 2, 0)


def test_limits_of_experts_are_one_number_or_one_for_each_layer() -> None:
    key = "llama.swiglu_clamp_exp"
    for value, expected in ((7.0, (7.0, 7.0)), ([0, 5], (0.0, 5.0)), ([0, 0], ())):
        given = np.array(value, np.float32) if isinstance(value, list) else value
        found = config(EXPERTS | {key: given}).experts
        assert found is not None
        assert found.swiglu_limits == expected
    for wrong in ([7, -7], [7, 7, 7]):
        with pytest.raises(ConfigError, match=key):
            config(EXPERTS | {key: np.array(wrong, np.float32)})


def test_query_heads_of_layers() -> None:
    found = config({"llama.attention.head_count": np.array([4, 8], np.int32)})
    assert (found.num_heads, found.layer_heads) == (8, (4, 8))
    assert [found.of_layer(layer).num_heads for layer in range(2)] == [4, 8]
    same = {"llama.attention.head_count": np.array([4, 8], np.int32)}
    assert config(same | {"llama.attention.head_count_kv": None}).layer_kv_heads == (4, 8)
    with pytest.raises(UnsupportedError, match=r"\(num_heads\) varies by layer .* llama"):
        make_decoder(found, (), "x.gguf")


def test_the_attention_factor_of_laguna_replaces_the_usual_one() -> None:
    values = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    values |= {"rope.scaling.yarn_attn_factor": 1.0}
    assert config({f"llama.{key}": value for key, value in values.items()}) == config(
        {f"llama.{key}": value for key, value in values.items() if "attn" not in key}
    )
    laguna = {"general.architecture": "laguna"} | {
        f"laguna.{key}": value for key, value in values.items()
    }
    metadata = {key.replace("llama.", "laguna."): value for key, value in LLAMA.items()} | laguna
    scaling = config_from_metadata(metadata, {}, source="x.gguf").rope_scaling
    assert scaling.attn_factor == pytest.approx(1 / (1 + 0.1 * math.log(4)))


def test_the_base_of_rotations_contains_alpha() -> None:
    found = config({"llama.rope.scaling.alpha": 50.0})
    assert found.rope_theta == pytest.approx(10000 * 50 ** (8 / 6), rel=1e-6)


def test_models_of_experts_alone_need_no_dense_width() -> None:
    alone = EXPERTS | {"llama.expert_feed_forward_length": 32, "llama.feed_forward_length": None}
    assert config(alone).intermediate_size == 0
    for changes in (
        {"llama.leading_dense_block_count": 1},
        {"llama.expert_feed_forward_length": None},
    ):
        with pytest.raises(ConfigError, match=r"llama\.feed_forward_length .*is missing"):
            config(alone | changes)


LATENT: dict[str, object] = {
    "llama.attention.head_count_kv": 1,
    "llama.attention.key_length": 36,
    "llama.attention.value_length": 32,
    "llama.attention.kv_lora_rank": 32,
    "llama.attention.key_length_mla": 12,
    "llama.attention.value_length_mla": 10,
    "llama.rope.dimension_count": 4,
}
OLDER_LATENT = LATENT | {
    "llama.attention.head_count_kv": 8,
    "llama.attention.key_length": 12,
    "llama.attention.value_length": 10,
    "llama.attention.key_length_mla": None,
    "llama.attention.value_length_mla": None,
}


def test_latent_attention() -> None:
    assert config(LATENT).latent == LatentConfig(32, 0, 12, 10)
    assert config(LATENT | {"llama.attention.q_lora_rank": 24}).latent == LatentConfig(
        32, 24, 12, 10
    )
    assert config(OLDER_LATENT).latent == LatentConfig(32, 0, 12, 10)
    assert config(LATENT | {"llama.attention.kv_lora_rank": None}).latent is None


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
    small_heads = {"llama.attention.head_count": 4096, "llama.attention.key_length": 2}
    with pytest.raises(ConfigError, match="262144 is trinity's limit for the product with"):
        config({"llama.attention.head_count": 4096, "llama.attention.key_length": 128})
    with pytest.raises(ConfigError, match="16384 is trinity's limit for the product with"):
        config({"llama.block_count": 512, "llama.attention.head_count": 64,
                "llama.attention.head_count_kv": 64, "llama.attention.key_length": 2,
                "llama.rope.dimension_count": 2})  # fmt: skip
    with pytest.raises(ConfigError, match="262144 is trinity's limit for the product with"):
        config(small_heads | {"llama.attention.value_length": 128})
    with pytest.raises(ConfigError, match="262144 is trinity's limit for the product with"):
        config(small_heads | {"llama.attention.key_length_swa": 128})
    with pytest.raises(ConfigError, match="262144 is trinity's limit for the product with"):
        config({"llama.block_count": 512, "llama.embedding_length_per_layer_input": 1024})
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
        ({"llama.rope.dimension_count_swa": 10}, ["(rope_dim_swa) is 10", "key_length (head_dim)"]),
        (
            {"llama.rope.dimension_count_swa": 8, "llama.attention.key_length_swa": 4},
            ["dimension_count_swa (rope_dim_swa) is 8", "key_length_swa (head_dim_swa)"],
        ),
        ({"llama.attention.value_length_swa": 4}, ["key_length_swa (head_dim_swa) is missing"]),
        (
            {"llama.attention.sliding_window": 2**31},
            ["sliding_window) is 2147483648", "2147483647"],
        ),
        (
            {"llama.attention.sliding_window_pattern": np.array([False, True])},
            ["sliding_window_pattern) is true for layer 1", "attention.sliding_window (sliding_w"],
        ),
        (
            {"llama.attention.sliding_window_pattern": np.array([True])},
            ["sliding_window_pattern) is an array of 1", "2 layers (llama.block_count)"],
        ),
        (
            {"llama.attention.sliding_window_pattern": np.array([1, 1])},
            ["sliding_window_pattern) is an array of 2 of int64", "one bool"],
        ),
        ({"llama.attention.shared_kv_layers": 2}, ["shared_kv_layers) is 2", "llama.block_count"]),
        ({"llama.rope.scaling.finetuned": 1}, ["finetuned (rope_finetuned) is 1", "true or false"]),
        ({"llama.expert_used_count": 2}, ["llama.expert_used_count", "llama.expert_count"]),
        ({"llama.expert_count": 2}, ["llama.expert_used_count", "is missing"]),
        (
            EXPERTS | {"llama.expert_used_count": 0},
            ["expert_used_count", "it must be a whole number from 1 to"],
        ),
        (EXPERTS | {"llama.expert_used_count": 9}, ["tok) is 9", "llama.expert_count", "is 8"]),
        (EXPERTS | {"llama.expert_count": 1 << 20}, ["llama.expert_count", "0 to 4096"]),
        (EXPERTS | {"llama.leading_dense_block_count": 3}, ["(first_dense_layers) is 3", "is 2"]),
        (EXPERTS | {"llama.expert_gating_func": 4}, ["expert_gating_func", "is 4", "2 (sigmoid)"]),
        (EXPERTS | {"llama.expert_gating_func": 0}, ["expert_gating_func", "is 0", "1 (softmax)"]),
        (EXPERTS | {"llama.expert_weights_norm": 2}, ["expert_weights_norm", "true or false"]),
        (EXPERTS | {"llama.expert_weights_scale": math.nan}, ["expert_weights_scale", "is nan"]),
        (
            EXPERTS | {"llama.expert_shared_count": 1},
            ["expert_shared_count", "llama.expert_feed_forward_length", "missing"],
        ),
        (EXPERTS | {"llama.expert_group_count": 3}, ["(num_expert_groups) is 3", "which is 8"]),
        (EXPERTS | {"llama.expert_group_count": 8}, ["(num_expert_groups) is 8", "which is 8"]),
        (EXPERTS | {"llama.expert_group_count": 2}, ["expert_group_used_count", "is missing"]),
        (
            EXPERTS | {"llama.expert_group_count": 2, "llama.expert_group_used_count": 3},
            ["(expert_groups_used) is 3", "llama.expert_group_count"],
        ),
        (
            EXPERTS
            | {
                "llama.expert_used_count": 5,
                "llama.expert_group_count": 4,
                "llama.expert_group_used_count": 2,
            },
            ["(expert_groups_used) is 2", "5 experts", "llama.expert_group_count"],
        ),
        (LATENT | {"llama.attention.kv_lora_rank": 16}, ["key_length (head_dim) is 36", "rank"]),
        (LATENT | {"llama.attention.value_length": 16}, ["(value_dim) is 16", "kv_lora_rank"]),
        (LATENT | {"llama.attention.head_count_kv": 2}, ["(num_kv_heads) is 2", "key_length_mla"]),
        (LATENT | {"llama.attention.key_length_mla": 4}, ["(latent_key_dim) is 4", "(rope_dim)"]),
        (LATENT | {"llama.attention.value_length_mla": None}, ["value_length_mla", "is missing"]),
        (OLDER_LATENT | {"llama.rope.dimension_count": 12}, ["(head_dim) is 12", "(rope_dim)"]),
        (
            OLDER_LATENT | {"llama.attention.kv_lora_rank": 1 << 16},
            ["(num_heads) is 8", "(kv_lora_rank), which is 65536"],
        ),
    ],
)
def test_contradictions_name_both_sides(changes: dict[str, object], both: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        config(changes)
    for side in both:
        assert side in str(caught.value)


@pytest.mark.parametrize("taps", [0, 1])
def test_a_convolution_sees_an_earlier_token(taps: int) -> None:
    """With a width of one token the layer would have no state."""
    assert config().short_conv_kernel == 0
    assert config({"llama.shortconv.l_cache": 2}).short_conv_kernel == 2
    with pytest.raises(
        ConfigError, match=rf"shortconv\.l_cache .* is {taps}; it must be a whole number from 2 to"
    ):
        config({"llama.shortconv.l_cache": taps})
