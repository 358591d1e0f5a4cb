"""Write tests/data/families.npz: the logits that MLX computes of the small models of each family.

    pip install 'mlx[cpu]' mlx-lm
    python scripts/family_goldens.py

The tests need none of these packages: they draw the same models (tests/models/family_models.py).
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.models import family_models as small  # noqa: E402

MODULES = {"qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text", "phi3": "phi3"}
PARTS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OF_FAMILY = {
    "gemma3": {
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
}


def config(name: str) -> dict[str, Any]:
    """config.json of the model, as published checkpoints have it."""
    family = small.FAMILIES[name]
    found = {
        "model_type": name, "hidden_size": small.HIDDEN, "num_hidden_layers": family.layers,
        "intermediate_size": small.FFN, "num_attention_heads": small.HEADS,
        "num_key_value_heads": small.KV_HEADS, "head_dim": family.head_dim,
        "rms_norm_eps": small.EPS, "max_position_embeddings": 64, "tie_word_embeddings": True,
        "rope_theta": family.keys["rope.freq_base"],
        "vocab_size": len(small.sentencepiece_vocabulary()[0]),
    }  # fmt: skip
    if name == "gemma3":
        found |= {"sliding_window": 4, "query_pre_attn_scalar": family.head_dim}
    if name == "phi3":
        factors = list(family.factors)
        found |= {
            "partial_rotary_factor": 0.75, "original_max_position_embeddings": 8,
            "rope_scaling": {
                "type": "longrope", "long_factor": factors, "short_factor": [1.0] * len(factors)
            },
        }  # fmt: skip
    return found


def place(name: str, tensor: str) -> str:
    """GGUF's name of a tensor in MLX's words."""
    if not tensor.startswith("blk."):
        names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
        return f"{names[tensor.removesuffix('.weight')]}.weight"
    _, layer, part, kind = tensor.split(".")
    return f"model.layers.{layer}.{(PARTS | OF_FAMILY.get(name, {}))[part]}.{kind}"


def logits(name: str) -> np.ndarray:
    """MLX's logits after each token of the prompt."""
    module = importlib.import_module(f"mlx_lm.models.{MODULES[name]}")
    model = module.Model(module.ModelArgs.from_dict(config(name)))
    weights = {}
    for tensor, values in small.tensors_of(name).items():
        # llama.cpp's converter adds the 1 of Gemma's norms.
        less = 1 if name == "gemma3" and "norm" in tensor else 0
        weights[place(name, tensor)] = mx.array(values - np.float32(less))
    if hasattr(model, "sanitize"):
        weights = model.sanitize(weights)
    model.load_weights(list(weights.items()), strict=True)
    return np.array(model(mx.array([small.PROMPT]))[0].astype(mx.float32))


def main() -> None:
    found = {name: logits(name) for name in small.FAMILIES}
    np.savez_compressed(ROOT / "tests" / "data" / "families.npz", **found)


if __name__ == "__main__":
    main()
