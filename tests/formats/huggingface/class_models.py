"""Deterministic small models of transformers' classes, written as directories.

Names and shapes of tensors follow from the family's table, and weights are drawn from the names.
tests/data stores only the logits and greedy tokens, which ``tests/goldens/class_goldens.py``
computes with transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.models.make_directory import byte_tokenizer
from tests.formats.huggingface.drawn import drawn_tensor
from tests.formats.raw_safetensors import write_safetensors
from tests.fuzzing.hf_families import stored_tensors

PROMPT = [(5 * i * i + 11 * i + 7) % 256 for i in range(20)]
TOKENS = 24  # greedy ones after the prompt
_COMMON: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "vocab_size": 258, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
    "rope_theta": 1e4, "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 257,
    "pad_token_id": None, "dtype": "float32",
}  # fmt: skip
_GPT_NEOX = _COMMON | {
    "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_act": "gelu",
    "intermediate_size": 256, "rotary_pct": 0.25, "rotary_emb_base": 10000,
    "use_parallel_residual": True,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "arcee": _COMMON | {
        "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2",
        "head_dim": 24,
    },
    "arcee_yarn": _COMMON | {  # AFM's scaling
        "architectures": ["ArceeForCausalLM"], "model_type": "arcee", "hidden_act": "relu2",
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "yarn", "factor": 20.0, "original_max_position_embeddings": 32,
            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "rope_theta": 1e4,
        },
    },
    "gptneox": _GPT_NEOX,
    "gptneox_in_turn": _GPT_NEOX | {"use_parallel_residual": False},
    "olmoe": _COMMON | {
        "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_act": "silu",
        "num_key_value_heads": 4, "intermediate_size": 32, "num_experts": 8,
        "num_experts_per_tok": 3, "norm_topk_prob": False, "rms_norm_eps": 1e-5,
    },
    "seed_oss": _COMMON | {
        "architectures": ["SeedOssForCausalLM"], "model_type": "seed_oss", "hidden_act": "silu",
        "head_dim": 24, "attention_bias": True, "attention_out_bias": False,
    },
    "ernie4_5": _COMMON | {
        "architectures": ["Ernie4_5ForCausalLM"], "model_type": "ernie4_5", "hidden_act": "silu",
        "head_dim": 24, "use_bias": False, "tie_word_embeddings": True,
    },
    "dots1": _COMMON | {
        "architectures": ["Dots1ForCausalLM"], "model_type": "dots1", "hidden_act": "silu",
        "num_key_value_heads": 4, "num_hidden_layers": 3, "moe_intermediate_size": 32,
        "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
        "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    },
}  # fmt: skip


# The beginnings of names in published checkpoints, where the family's table has others.
PUBLISHED: dict[str, dict[str, str]] = {
    "gpt_neox": {
        "model.": "gpt_neox.", "embed_in": "gpt_neox.embed_in",
        "final_layer_norm": "gpt_neox.final_layer_norm", "lm_head": "embed_out",
    },
}  # fmt: skip


def _published(tensor: str, config: dict[str, Any]) -> str:
    for own, published in PUBLISHED.get(config["model_type"], {}).items():
        if tensor.startswith(own):
            return published + tensor.removeprefix(own)
    return tensor


def write(name: str, folder: Path) -> Path:
    """Write a model's directory; each tensor is drawn from its name."""
    folder.mkdir(parents=True)
    config = CONFIGS[name]
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()), "utf-8")
    tensors = {
        _published(tensor, config): drawn_tensor(f"{name} {tensor}", shape)
        for tensor, shape, _ in stored_tensors(config)
    }
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


def golden(name: str) -> tuple[NDArray[np.float32], list[int]]:
    """Return transformers' logits after each token of PROMPT, and the greedy tokens after it."""
    with np.load(Path(__file__).parents[2] / "data" / "classes.npz") as goldens:
        return goldens[name], goldens[f"{name} greedy"].tolist()
