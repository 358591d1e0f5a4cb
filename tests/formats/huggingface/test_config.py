"""Reading of config.json; errors name the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trinity.config import ModelConfig
from trinity.errors import ConfigError, FormatError, TrinityError, UnsupportedError
from trinity.formats.huggingface.hf_model import HFModel
from trinity.formats.huggingface.quantization import TernaryPacking
from trinity.formats.huggingface.rope import UNSCALED, LinearScaling, Llama3Scaling
from trinity.formats.json_object import read_json_object
from trinity.models import read_model

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
}
BITNET_QUANT = {"quant_method": "bitnet"}


def described(**changes: object) -> HFModel:
    return read_model({**LLAMA, **changes}, "config.json")


def config(**changes: object) -> ModelConfig:
    return described(**changes).config


def test_plain_llama() -> None:
    model = described()
    read = model.config
    assert (read.head_dim, read.num_kv_heads, read.rope_theta) == (16, 2, 10000.0)
    assert (model.tied, model.ternary, model.rope.scaling) == (None, None, UNSCALED)
    assert (read.sliding_window, read.sliding_window_pattern) == (0, (False, False))


def test_missing_kv_heads_are_as_many_as_heads() -> None:
    assert config(num_key_value_heads=None).num_kv_heads == 4


def test_head_dim_of_its_own() -> None:
    assert config(head_dim=80).head_dim == 80
    assert config(head_dim=80, hidden_size=65).head_dim == 80


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0}},
    ],
)
def test_linear_rope_scaling_by_old_and_new_keys(keys: dict[str, object]) -> None:
    read = described(**keys)
    assert (read.rope.theta, read.rope.scaling) == (5e5, LinearScaling(4.0))


def test_llama3_rope_scaling() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert described(rope_scaling=scaling).rope.scaling == Llama3Scaling(8.0, 1.0, 4.0, 8192)
    with pytest.raises(ConfigError, match="high_freq_factor"):
        config(rope_scaling={**scaling, "high_freq_factor": 0.5})


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        (BITNET_QUANT, TernaryPacking(packed=True, divides=True)),
        ({**BITNET_QUANT, "linear_class": "autobitlinear"}, TernaryPacking(packed=True)),
        (
            {**BITNET_QUANT, "linear_class": "autobitlinear", "quantization_mode": "online"},
            TernaryPacking(packed=False),
        ),
        ({**BITNET_QUANT, "modules_to_not_convert": ["lm_head"]}, TernaryPacking(True, True)),
    ],
)
def test_quantization(quantization: dict[str, object], expected: TernaryPacking) -> None:
    """The options have the meaning of transformers' BitNetQuantConfig."""
    assert described(quantization_config=quantization).ternary == expected


def test_sliding_window() -> None:
    """transformers' Llama class does not read this key."""
    mistral: dict[str, object] = {"architectures": ["MistralForCausalLM"], "sliding_window": 128}
    assert config(sliding_window=128).sliding_window == 0
    assert config(**mistral).sliding_window == 128
    assert config(**{**mistral, "sliding_window": None}).sliding_window == 0
    assert config(**mistral, use_sliding_window=False).sliding_window == 0
    qwen = {**mistral, "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": True}
    assert config(**qwen).sliding_window_pattern == (
        False,
        False,
    )  # max_window_layers is 28 where absent
    assert config(**qwen, max_window_layers=1).sliding_window_pattern == (False, True)


REFUSED: list[tuple[dict[str, object], type[TrinityError], str]] = [
    ({"model_type": "prism_hadamard_qwen35"}, UnsupportedError, "form of rotated weights"),
    ({"architectures": None}, ConfigError, "architectures is None"),
    ({"architectures": ["A", "B"]}, ConfigError, "architectures"),
    ({"architectures": [5]}, ConfigError, "architectures"),
    ({"hidden_size": None}, ConfigError, "hidden_size is missing"),
    ({"hidden_size": 0}, ConfigError, "hidden_size is 0"),
    ({"hidden_size": 64.0}, ConfigError, "hidden_size is 64.0"),
    ({"hidden_size": True}, ConfigError, "hidden_size is True"),
    ({"hidden_size": 2**31}, ConfigError, "hidden_size"),
    ({"hidden_size": 66}, ConfigError, "not a multiple of num_attention_heads 4"),
    ({"hidden_size": 60}, ConfigError, "heads of 15 dimensions"),
    ({"num_key_value_heads": 3}, ConfigError, "does not divide num_attention_heads 4"),
    ({"rms_norm_eps": 0}, ConfigError, "rms_norm_eps"),
    ({"rms_norm_eps": "1e-5"}, ConfigError, "rms_norm_eps"),
    ({"rope_theta": -1.0}, ConfigError, "rope_theta"),
    ({"tie_word_embeddings": "yes"}, ConfigError, "tie_word_embeddings"),
    ({"hidden_act": 5}, ConfigError, "hidden_act"),
    ({"rope_scaling": "linear"}, ConfigError, "rope_scaling"),
    ({"rope_scaling": {"type": "linear"}}, ConfigError, "factor is missing"),
    ({"rope_scaling": {"type": "ntk", "factor": 2.0}}, UnsupportedError, "'ntk'"),
    ({"partial_rotary_factor": 0.5}, UnsupportedError, "partial_rotary_factor"),
    ({"quantization_config": {"quant_method": "hqq"}}, UnsupportedError, "'hqq'"),
    ({"quantization_config": 5}, UnsupportedError, "quantization_config"),
    (
        {"quantization_config": {**BITNET_QUANT, "use_rms_norm": True}},
        UnsupportedError,
        "use_rms_norm",
    ),
    (
        {"quantization_config": {**BITNET_QUANT, "modules_to_not_convert": ["mlp"]}},
        UnsupportedError,
        "modules_to_not_convert",
    ),
    (
        {"quantization_config": {**BITNET_QUANT, "linear_class": "x"}},
        UnsupportedError,
        "linear_class",
    ),
]


@pytest.mark.parametrize(("changes", "kind", "message"), REFUSED, ids=lambda v: str(v)[:40])
def test_refused(changes: dict[str, object], kind: type[TrinityError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        config(**changes)
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff", b'{"a":1,"a":2}', b'{"a":NaN}', b"[" * 100_000]
)
def test_a_json_file_that_is_no_object(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"config\.json"):
        read_json_object(str(path))


def test_a_byte_order_mark_is_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert read_json_object(str(path)) == {"a": 1}
