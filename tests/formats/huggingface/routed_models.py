"""Deterministic small models with DeepSeek's experts, written as directories.

Their weights are drawn. tests/data stores only the logits and greedy tokens, which
``tests/goldens/class_goldens.py`` computes with transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.models.make_directory import byte_tokenizer
from tests.formats.huggingface.drawn import drawn_tensor
from tests.formats.raw_safetensors import write_safetensors

PROMPT = [(5 * i * i + 11 * i + 7) % 256 for i in range(20)]
TOKENS = 24  # greedy ones behind the prompt
_COMMON: dict[str, Any] = {
    "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "vocab_size": 258,
    "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 128,
    "moe_intermediate_size": 32, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
    "norm_topk_prob": True, "tie_word_embeddings": False, "rms_norm_eps": 1e-5,
    "bos_token_id": 256, "eos_token_id": 257, "dtype": "float32",
}  # fmt: skip
_GLM = _COMMON | {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "head_dim": 24,
    "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rope_theta": 1e6,
    "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "routed_scaling_factor": 1.0, "attention_bias": True, "use_qk_norm": False,
    "num_nextn_predict_layers": 0,
}  # fmt: skip
_DEEPSEEK = _COMMON | {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "num_key_value_heads": 4, "q_lora_rank": 40, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 20, "rope_theta": 1e4, "n_routed_experts": 16,
    "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5,
    "topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1,
    "num_nextn_predict_layers": 0,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "glm4_moe": _GLM,
    "glm4_moe_groups": _GLM | {  # of GLM 4.5's 355B: norms of heads; and groups
        "attention_bias": False, "use_qk_norm": True, "n_routed_experts": 12, "n_group": 3,
        "topk_group": 2, "routed_scaling_factor": 2.5, "n_shared_experts": 2,
    },
    "deepseek_v3": _DEEPSEEK | {
        "rope_scaling": {
            "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
            "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
        },
    },
    "moonlight": _DEEPSEEK | {  # queries straight from the stream, one group
        "q_lora_rank": None, "n_group": 1, "topk_group": 1, "n_routed_experts": 8,
        "n_shared_experts": 2, "routed_scaling_factor": 2.446,
    },
    "deepseek_v3_llama3": _DEEPSEEK | {  # norms of latents do not have the others' epsilon
        "rms_norm_eps": 1e-3,
        "rope_scaling": {
            "type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "deepseek_v2_groups": _DEEPSEEK | {  # of V2's 236B
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
        "topk_method": "group_limited_greedy", "scoring_func": "softmax", "norm_topk_prob": False,
        "routed_scaling_factor": 16.0,
    },
}  # fmt: skip
Shapes = dict[str, tuple[int, ...]]


def shapes(config: dict[str, Any]) -> Shapes:
    """Return the shapes of a checkpoint's tensors by name."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    found: Shapes = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
    }
    for index in range(config["num_hidden_layers"]):
        layer = _latent(config) if "kv_lora_rank" in config else _grouped(config)
        layer["input_layernorm.weight"] = layer["post_attention_layernorm.weight"] = (hidden,)
        layer |= _feed_forward(config, dense=index < config["first_k_dense_replace"])
        found |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    return found


def _grouped(config: dict[str, Any]) -> Shapes:
    hidden, dim = config["hidden_size"], config["head_dim"]
    query, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    rows = {"q_proj": query, "k_proj": keys, "v_proj": keys}
    found: Shapes = {f"self_attn.{name}.weight": (size, hidden) for name, size in rows.items()}
    found["self_attn.o_proj.weight"] = (hidden, query)
    if config["attention_bias"]:
        found |= {f"self_attn.{name}.bias": (size,) for name, size in rows.items()}
    if config["use_qk_norm"]:
        found |= {f"self_attn.{name}_norm.weight": (dim,) for name in "qk"}
    return found


def _latent(config: dict[str, Any]) -> Shapes:
    hidden, heads, values = (
        config[key] for key in ("hidden_size", "num_attention_heads", "v_head_dim")
    )
    plain, turned, rank, queries = (
        config[key]
        for key in ("qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank", "q_lora_rank")
    )
    found: Shapes = {"q_proj.weight": (heads * (plain + turned), hidden)}
    if queries:
        found = {
            "q_a_proj.weight": (queries, hidden),
            "q_a_layernorm.weight": (queries,),
            "q_b_proj.weight": (heads * (plain + turned), queries),
        }
    found |= {
        "kv_a_proj_with_mqa.weight": (rank + turned, hidden),
        "kv_a_layernorm.weight": (rank,),
        "kv_b_proj.weight": (heads * (plain + values), rank),
        "o_proj.weight": (hidden, heads * values),
    }
    return {f"self_attn.{name}": shape for name, shape in found.items()}


def _feed_forward(config: dict[str, Any], *, dense: bool) -> Shapes:
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    if dense:
        return _gated(hidden, config["intermediate_size"], "mlp")
    count = config["n_routed_experts"]
    found: Shapes = {
        "mlp.gate.weight": (count, hidden),
        **_gated(hidden, config["n_shared_experts"] * width, "mlp.shared_experts"),
    }
    if config.get("scoring_func") != "softmax":
        found["mlp.gate.e_score_correction_bias"] = (count,)
    for expert in range(count):
        found |= _gated(hidden, width, f"mlp.experts.{expert}")
    return found


def _gated(hidden: int, width: int, start: str) -> Shapes:
    rows = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
    return {f"{start}.{name}.weight": shape for name, shape in rows.items()}


def write(name: str, folder: Path) -> Path:
    """Write a model's directory; each tensor is drawn from its name."""
    folder.mkdir(parents=True)
    config = CONFIGS[name]
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()), "utf-8")
    drawn = {
        tensor: drawn_tensor(f"{name} {tensor}", shape) for tensor, shape in shapes(config).items()
    }
    write_safetensors(folder / "model.safetensors", drawn)
    return folder
