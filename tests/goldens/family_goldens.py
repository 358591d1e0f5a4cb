"""Write tests/data/families.npz: logits that MLX computes of the small models of each family.

    pip install 'mlx[cpu]' mlx-lm
    python tests/goldens/family_goldens.py

The tests need none of these packages: they draw the same models (tests/models/family_models.py).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.models import family_models as small  # noqa: E402

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
BEHIND = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
BETWEEN = BEHIND | {"ffn_norm": "pre_feedforward_layernorm"}
WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}


def experts(block: str, router: str = "gate") -> dict[str, str]:
    """Return the names of a block of experts."""
    return {
        "ffn_gate_inp": f"{block}.{router}",
        "ffn_gate_exps": f"{block}.switch_mlp.gate_proj",
        "ffn_up_exps": f"{block}.switch_mlp.up_proj",
        "ffn_down_exps": f"{block}.switch_mlp.down_proj",
    }


def shared(block: str) -> dict[str, str]:
    """Return the names of a shared expert."""
    return {f"ffn_{part}_shexp": f"mlp.{block}.{part}_proj" for part in ("gate", "up", "down")}


@dataclass(frozen=True)
class Peer:
    """A model of MLX: its module, and the differences of its configuration and tensor names.

    ``permuted``: GGUF stores the rows of q and k in another order. ``one``: what GGUF adds to
    norms. ``change`` converts GGUF's tensors to MLX's.
    """

    module: str
    config: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    permuted: bool = False
    one: float = 0.0
    change: Callable[[small.Tensors], small.Tensors] = lambda tensors: tensors


def joined(tensors: small.Tensors) -> small.Tensors:
    """DeepSeek: return the matrices of keys and of values of each head in one."""
    result = dict(tensors)
    for name in tensors:
        if name.endswith("attn_k_b.weight"):
            values = name.replace("k_b", "v_b")
            both = np.concatenate([tensors[name].transpose(0, 2, 1), tensors[values]], axis=1)
            result[name.replace("k_b", "kv_b")] = both.reshape(-1, both.shape[-1])
            del result[name], result[values]
    return result


SCALES = {
    "logits_scaling": 1.7, "attention_multiplier": 0.21, "embedding_multiplier": 2.0,
    "residual_multiplier": 0.9, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip
LATENT = Peer(
    "deepseek_v2",
    {
        "moe_intermediate_size": small.EXPERT_FFN, "n_shared_experts": 2, "n_routed_experts": 6,
        "kv_lora_rank": 32, "q_lora_rank": None, "qk_rope_head_dim": 8, "v_head_dim": 20,
        "qk_nope_head_dim": small.HEAD_DIM - 8, "num_experts_per_tok": 2,
        "first_k_dense_replace": 1, "topk_method": "greedy",
        "rope_scaling": {"type": "yarn", "factor": 1.0, "original_max_position_embeddings": 64},
    },
    experts("mlp") | shared("shared_experts") | {
        "attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
        "attn_q_b": "self_attn.q_b_proj", "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
        "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_kv_b": "self_attn.kv_b_proj",
    },
    change=joined,
)  # fmt: skip
YARN = {
    "type": "yarn", "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
    "beta_fast": 32.0, "beta_slow": 1.0,
}  # fmt: skip
WINDOWED = {"sliding_window": small.WINDOW}
PEERS = {
    "qwen2": Peer("qwen2"),
    "qwen3": Peer("qwen3"),
    "qwen3_yarn": Peer("qwen3", {"rope_scaling": YARN}),
    "gemma": Peer("gemma", one=1.0),
    "gemma2": Peer(
        "gemma2",
        {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 9.0,
         "query_pre_attn_scalar": small.HEAD_DIM},
        BETWEEN, one=1.0,
    ),
    "gemma3": Peer(
        "gemma3_text", WINDOWED | {"query_pre_attn_scalar": small.HEAD_DIM}, BETWEEN, one=1.0
    ),
    "phi3": Peer(
        "phi3",
        {"partial_rotary_factor": 0.75, "original_max_position_embeddings": 8,
         "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 6,
                          "long_factor": list(small.FAMILIES["phi3"].factors)}},
        {"ffn_up": "mlp.gate_up_proj"},
    ),
    "granite": Peer("granite", SCALES, permuted=True),
    "smollm3": Peer("smollm3", permuted=True),
    "ministral3": Peer(
        "ministral3",
        {"rope_parameters": {
            "type": "yarn", "rope_theta": 1e4, "factor": 16.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "original_max_position_embeddings": 4, "mscale": 1.0,
            "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}},
        permuted=True,
    ),
    "olmo2": Peer("olmo2", parts=BEHIND),
    "olmo3": Peer(
        "olmo3", WINDOWED | {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]}, BEHIND
    ),
    "glm4": Peer(
        "glm4", {"attention_bias": True, "partial_rotary_factor": 0.5},
        {"post_attention_norm": "post_self_attn_layernorm", "ffn_up": "mlp.gate_up_proj",
         "post_ffw_norm": "post_mlp_layernorm"},
    ),
    "exaone4": Peer("exaone4", WINDOWED | {"sliding_window_pattern": "LLLG"}, BEHIND),
    "command-r": Peer("cohere", {"logit_scale": 0.75}),
    "command-r-plus": Peer("cohere", {"logit_scale": 0.75, "use_qk_norm": True}),
    "cohere2": Peer("cohere2", WINDOWED | {"logit_scale": 0.75}),
    "starcoder2": Peer(
        "starcoder2", {"norm_epsilon": small.EPS},
        {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    ),
    "phi2": Peer(
        "phi", {"partial_rotary_factor": 0.5, "num_key_value_heads": small.HEADS},
        {"attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2"},
        {"output_norm": "model.final_layernorm"},
    ),
    "mixtral": Peer(
        "mixtral", {"num_local_experts": 6, "num_experts_per_tok": 2},
        experts("block_sparse_moe"), permuted=True,
    ),
    "qwen2_moe": Peer(
        "qwen2_moe",
        {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": small.EXPERT_FFN,
         "shared_expert_intermediate_size": 48},
        experts("mlp") | shared("shared_expert")
        | {"ffn_gate_inp_shexp": "mlp.shared_expert_gate"},
    ),
    "qwen3_moe": Peer(
        "qwen3_moe",
        {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": small.EXPERT_FFN,
         "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True},
        experts("mlp"),
    ),
    "granitemoe": Peer(
        "granitemoe", SCALES | {"num_local_experts": 6, "num_experts_per_tok": 2},
        experts("block_sparse_moe", "router.layer"), permuted=True,
    ),
    "deepseek_v2": replace(LATENT, config=LATENT.config | {"q_lora_rank": 40}),
    "deepseek_v2_lite": LATENT,
    "deepseek_v2_yarn": replace(
        LATENT,
        config=LATENT.config
        | {"rope_scaling": YARN | {"mscale": 0.707, "mscale_all_dim": 0.707}},
    ),
    "deepseek_v3": replace(
        LATENT, module="deepseek_v3",
        config=LATENT.config | {
            "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "topk_method": "noaux_tc",
            "norm_topk_prob": True, "routed_scaling_factor": 2.5},
        parts=LATENT.parts | {"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"},
    ),
    "gpt_oss": Peer(
        "gpt_oss",
        WINDOWED | {"num_local_experts": 6, "num_experts_per_tok": 2, "rope_scaling": YARN,
                    "intermediate_size": small.EXPERT_FFN},
        {"post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router",
         "attn_sinks.weight": "self_attn.sinks", "ffn_gate_exps": "mlp.experts.gate_proj",
         "ffn_up_exps": "mlp.experts.up_proj", "ffn_down_exps": "mlp.experts.down_proj"},
    ),
}  # fmt: skip


def config(name: str) -> dict[str, Any]:
    """Return the model's config.json, as in published checkpoints."""
    family, peer = small.FAMILIES[name], PEERS[name]
    return {
        "model_type": peer.module, "hidden_size": small.HIDDEN,
        "num_hidden_layers": family.layers, "intermediate_size": small.FFN,
        "num_attention_heads": small.HEADS, "num_key_value_heads": small.KV_HEADS,
        "head_dim": family.head_dim, "rms_norm_eps": small.EPS, "layer_norm_eps": small.EPS,
        "max_position_embeddings": small.CONTEXT, "tie_word_embeddings": family.tied,
        "rope_theta": family.keys.get("rope.freq_base", 1e4), "rope_scaling": None,
        "vocab_size": small.vocab_size(),
    } | peer.config  # fmt: skip


def place(name: str, tensor: str) -> str:
    """Translate GGUF's name of a tensor to MLX's."""
    peer = PEERS[name]
    if not tensor.startswith("blk."):
        stem, kind = tensor.split(".")
        return f"{(WHOLE | peer.whole)[stem]}.{kind}"
    _, layer, part, kind = tensor.split(".")
    parts = PARTS | peer.parts
    whole = parts.get(f"{part}.{kind}") or f"{parts[part]}.{kind}"
    return f"model.layers.{layer}.{whole}"


def halves(values: np.ndarray, heads: int) -> np.ndarray:
    """Reorder rows of neighbouring pairs to pairs that are half a head apart."""
    pairs = values.reshape(heads, -1, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def logits(name: str) -> np.ndarray:
    """Return MLX's logits after each of the stored tokens."""
    peer = PEERS[name]
    module = importlib.import_module(f"mlx_lm.models.{peer.module}")
    model = module.Model(module.ModelArgs.from_dict(config(name)))
    weights = {}
    for tensor, values in peer.change(small.tensors_of(name)).items():
        if tensor.startswith("rope_"):
            continue
        if peer.permuted and "attn_q." in tensor:
            values = halves(values, small.HEADS)
        if peer.permuted and "attn_k." in tensor:
            values = halves(values, small.KV_HEADS)
        # llama.cpp's converter adds the 1 of Gemma's norms.
        less = np.float32(peer.one if "norm" in tensor else 0.0)
        weights[place(name, tensor)] = mx.array(values - less)
    if hasattr(model, "sanitize"):
        weights = model.sanitize(weights)
    model.load_weights(list(weights.items()), strict=True)
    found = np.array(model(mx.array([small.PROMPT]))[0].astype(mx.float32))
    return found[small.KEPT]


def main() -> None:
    found = {name: logits(name) for name in sys.argv[1:] or small.FAMILIES}
    if not sys.argv[1:]:
        np.savez_compressed(ROOT / "tests" / "data" / "families.npz", **found)


if __name__ == "__main__":
    main()
