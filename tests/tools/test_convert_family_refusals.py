"""Settings that a family or GGUF cannot express are refused by key and tensor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tools.family_directories import Arrays, arrays_of, directory
from trinity.errors import ConfigError, FormatError, TrinityError, UnsupportedError
from trinity.tools.convert import convert

Refused = tuple[str, dict[str, Any], type[TrinityError], str]
FULL, SLIDING = "full_attention", "sliding_attention"
LAYER = "model.layers.0."

# Folder, keys of config.json (null takes one away), the error and what it says.
CONFIGS: dict[str, Refused] = {
    "another activation": (
        "qwen2", {"hidden_act": "gelu"}, UnsupportedError, "hidden_act is 'gelu'.*with silu"
    ),
    "routing that adds up to 1": (
        "qwen2_moe", {"norm_topk_prob": True}, UnsupportedError, "norm_topk_prob is true.*never"
    ),
    "routing that does not": (
        "qwen3_moe", {"norm_topk_prob": False}, UnsupportedError, "norm_topk_prob is false.*always"
    ),
    "dense layers among experts": (
        "qwen3_moe", {"mlp_only_layers": [0]}, UnsupportedError, r"mlp_only_layers is \[0\]"
    ),
    "more experts used than there are": (
        "qwen3_moe", {"num_experts_per_tok": 9}, ConfigError,
        "num_experts_per_tok is 9; it exceeds num_local_experts 8",
    ),
    "an expert too few": (
        "qwen3_moe", {"num_local_experts": 7}, FormatError, r"not used.*experts\.7\."
    ),
    "an expert too many": (
        "qwen3_moe", {"num_local_experts": 9}, FormatError, r"missing.*experts\.8\."
    ),
    "another number of experts in a tensor": (
        "granitemoe", {"num_local_experts": 3}, FormatError,
        r"router\.layer.* has shape \(4, 64\).*implies \(3, 64\)",
    ),
    "no number of experts": (
        "mixtral", {"num_local_experts": None}, ConfigError, "num_local_experts is missing"
    ),
    "no scale of scores": (
        "gemma2", {"query_pre_attn_scalar": 0}, ConfigError, "query_pre_attn_scalar is 0"
    ),
    "a cap below zero": (
        "gemma2", {"attn_logit_softcapping": -1.0}, ConfigError, "attn_logit_softcapping is -1.0"
    ),
    "attention in both directions": (
        "gemma", {"use_bidirectional_attention": True}, UnsupportedError, "bidirectional"
    ),
    "kinds of layers that are too few": (
        "gemma3", {"layer_types": [SLIDING] * 6}, ConfigError, "layer_types has 6 values.*7"
    ),
    "a kind of layer": (
        "gemma3", {"layer_types": ["chunked_attention"] * 7}, UnsupportedError, "'chunked_att"
    ),
    "kinds of layers that are no list": (
        "gemma3", {"layer_types": "full"}, ConfigError, "layer_types is 'full'"
    ),
    "a window that is too long": (
        "gemma3", {"sliding_window": 2**31}, ConfigError, "sliding_window is 2147483648"
    ),
    "scaling in windowed layers": (
        "gemma3", {"rope_parameters": {
            FULL: {"rope_type": "default"}, SLIDING: {"rope_type": "linear", "factor": 2.0},
        }},
        UnsupportedError, "sliding_attention is .*without RoPE scaling",
    ),
    "norms of Q and K": ("phi2", {"qk_layernorm": True}, UnsupportedError, "qk_layernorm"),
    "more than a head that rotates": (
        "phi2", {"rope_parameters": {"partial_rotary_factor": 1.5}}, ConfigError, "at most 1"
    ),
    "nothing of a head that rotates": (
        "phi2", {"rope_parameters": {"partial_rotary_factor": 0.1}}, ConfigError, "makes 1 of"
    ),
    "a part of a head that rotates": (
        "llama3_rope", {"rope_parameters": {"partial_rotary_factor": 0.5}}, UnsupportedError,
        "partial_rotary_factor is 0.5",
    ),
    "divisors that are too few": (
        "phi3_longrope_long", {"rope_parameters": {
            "rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0] * 16,
        }},
        ConfigError, "short_factor has 1 values; expected a list of 16",
    ),
    "a divisor that is none": (
        "phi3_longrope_long", {"rope_parameters": {
            "rope_type": "longrope", "short_factor": [1.0] * 16, "long_factor": ["x"] * 16,
        }},
        ConfigError, "long_factor is 'x'",
    ),
    "an original context of 1": (
        "phi3_longrope_long", {"original_max_position_embeddings": 1}, ConfigError, "at least 2"
    ),
    "positions in every layer": (
        "smollm3", {"no_rope_layers": [1] * 5}, UnsupportedError, "no_rope_layers is"
    ),
    "another interval": (
        "smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 3}, UnsupportedError,
        "no_rope_layer_interval 3",
    ),
    "another limit": ("gpt_oss", {"swiglu_limit": 8.0}, UnsupportedError, "swiglu_limit is 8.0"),
    "another quantization": (
        "gpt_oss_mxfp4", {"quantization_config": {"quant_method": "hqq"}}, UnsupportedError,
        "method 'hqq'.*mxfp4",
    ),
    "quantization of a class that knows none": (
        "qwen3", {"quantization_config": {"quant_method": "bitnet"}}, UnsupportedError, "'bitnet'"
    ),
    "scaling that GGUF does not know of the class": (
        "cohere", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, UnsupportedError,
        "type 'yarn'",
    ),
    "another choice of experts": (
        "deepseek_v2", {"topk_method": "noaux_tc"}, UnsupportedError, "topk_method is 'noaux_tc'"
    ),
    "weights of experts that add up to 1 in some implementations": (
        "deepseek_v2", {"norm_topk_prob": True}, UnsupportedError, "norm_topk_prob is True"
    ),
    "rotation without pairs": (
        "deepseek_v2", {"qk_rope_head_dim": 7}, ConfigError, "qk_rope_head_dim is 7"
    ),
    "more dense layers than layers": (
        "deepseek_v2", {"first_k_dense_replace": 4}, ConfigError, "first_k_dense_replace is 4"
    ),
    "heads too wide for the latent": (
        "deepseek_v2", {"kv_lora_rank": 2**16}, ConfigError, "num_attention_heads 4 makes"
    ),
    "another width of values": (
        "deepseek_v2", {"v_head_dim": 21}, FormatError,
        r"kv_b_proj.* shape \(144, 32\).*implies \(4, 21, 32\)"
    ),
    "two magnitudes of YaRN": (
        "deepseek_v2", {"rope_parameters": {
            "rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.7,
        }},
        UnsupportedError, "mscale and mscale_all_dim differ",
    ),
    "growing queries without YaRN": (
        "ministral3", {"rope_parameters": {"llama_4_scaling_beta": 0.1}}, UnsupportedError,
        "llama_4_scaling_beta",
    ),
    "a last layer with a window": (
        "gemma4", {"layer_types": [FULL, FULL, SLIDING, SLIDING]}, ConfigError, "last layer"
    ),
    "windowed layers of another size": (
        "gemma4", {"per_layer_config": {"0": {"head_dim": 8}}}, UnsupportedError,
        "per_layer_config is",
    ),
    "full layers of two sizes": (
        "gemma4", {"per_layer_config": {"2": {"head_dim": 64}, "3": {"head_dim": 32}}},
        UnsupportedError, "heads of different sizes",
    ),
    "nobody to share with": (
        "gemma4_e", {"num_kv_shared_layers": 5}, ConfigError, "num_kv_shared_layers is 5"
    ),
    "more rows of layers' embeddings": (
        "gemma4_e", {"vocab_size_per_layer_input": 344}, UnsupportedError, "is 344 and vocab_size"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_configurations(name: str, shared_data: Path, tmp_path: Path) -> None:
    family, changes, kind, message = CONFIGS[name]
    folder = shared_data / "architectures" / family
    values = json.loads((folder / "hf" / "config.json").read_text("utf-8")) | changes
    values = {key: value for key, value in values.items() if changes.get(key, 0) is not None}
    source = directory(folder, tmp_path, config=values)
    with pytest.raises(kind, match=message) as caught:
        convert(source, tmp_path / "model.gguf", "f32")
    assert str(source) in str(caught.value)
    assert not (tmp_path / "model.gguf").exists()


def put(name: str, value: object) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.__setitem__(name, np.asarray(value))


def drop(name: str) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.pop(name)


def no_number(arrays: Arrays) -> None:
    arrays[f"{EXPERTS}down_proj_scales"][1, 2, 1] = 255


def infinite(arrays: Arrays) -> None:
    arrays[f"{LAYER}self_attn.kv_b_proj.weight"][-1, -1] = np.inf


EXPERTS = f"{LAYER}mlp.experts."
# Folder, change of the tensors, the error and what it says.
TENSORS: dict[str, tuple[str, Callable[[Arrays], object], type[TrinityError], str]] = {
    "no sinks": ("gpt_oss", drop(f"{LAYER}self_attn.sinks"), FormatError, "missing.*sinks"),
    "sinks of other heads": (
        "gpt_oss", put(f"{LAYER}self_attn.sinks", np.zeros(3, np.float32)), FormatError,
        r"sinks' has shape \(3,\)",
    ),
    "no scales": (
        "gpt_oss_mxfp4", drop(f"{EXPERTS}down_proj_scales"), FormatError,
        "missing.*down_proj_scales",
    ),
    "blocks that are floats": (
        "gpt_oss_mxfp4", put(f"{EXPERTS}down_proj_blocks", np.zeros((4, 64, 2, 16), np.float32)),
        FormatError, "down_proj_blocks' is F32",
    ),
    "blocks of other rows": (
        "gpt_oss_mxfp4", put(f"{EXPERTS}down_proj_blocks", np.zeros((4, 64, 1, 16), np.uint8)),
        FormatError, r"\(4, 64, 1, 16\)",
    ),
    "a scale that is not a number": (
        "gpt_oss_mxfp4", no_number, FormatError, "down_proj_scales' has the scale 255"
    ),
    "experts as blocks and as floats": (
        "gpt_oss_mxfp4", put(f"{EXPERTS}down_proj", np.zeros((4, 64, 64), np.float32)),
        FormatError, r"not used.*experts\.down_proj'",
    ),
    "a bias that the class has not": (
        "glm4", put(f"{LAYER}self_attn.o_proj.bias", np.zeros(64, np.float32)), FormatError,
        r"not used.*o_proj\.bias",
    ),
    "an infinite weight in a part of a tensor": (
        "deepseek_v2", infinite, FormatError, "kv_b_proj.*not finite"
    ),
    "a whole number": (
        "gemma4_moe", put(f"{LAYER}router.scale", np.zeros(64, np.int32)), UnsupportedError,
        "router.scale' is stored as I32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name: str, shared_data: Path, tmp_path: Path) -> None:
    family, change, kind, message = TENSORS[name]
    folder = shared_data / "architectures" / family
    arrays = arrays_of(folder)
    change(arrays)
    with pytest.raises(kind, match=message):
        convert(directory(folder, tmp_path, arrays), tmp_path / "model.gguf", "f32")
    assert not (tmp_path / "model.gguf").exists()


def test_a_window_that_gguf_cannot_say_is_told(shared_data: Path, tmp_path: Path) -> None:
    folder = shared_data / "architectures" / "starcoder2"
    values = json.loads((folder / "hf" / "config.json").read_text("utf-8"))
    source = directory(folder, tmp_path, config=values | {"sliding_window": 100})
    made = convert(source, tmp_path / "model.gguf", "f32")
    assert "window of 100 tokens cannot be stored for starcoder2" in made.notes[0]
