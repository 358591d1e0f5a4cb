"""GLM 4 of 2025: norms before and behind attention and feed-forward; gate and up are one tensor.

GLM 4.5 to 4.7 have norms before them only, and experts as DeepSeek V3 has them.
"""

from __future__ import annotations

from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import Table, attention, head_norms

_LAYER: Table = {
    "attn_norm": "input_layernorm",
    **attention(bias="attention_bias"),
    "post_attention_norm": "post_self_attn_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_mlp_layernorm",
}
_LAYER_OF_EXPERTS: Table = {
    "attn_norm": "input_layernorm",
    **attention(bias="attention_bias"),
    **head_norms(when="use_qk_norm"),
    "post_attention_norm": "post_attention_layernorm",
    **mixture.CHOSEN_WITH_BIAS,
}

FAMILIES = (
    Family(
        class_names=("Glm4ForCausalLM",),
        architectures={"silu": "glm4"},
        layer=_LAYER,
        terms=Terms(
            defaults={
                "head_dim": 128,
                "num_key_value_heads": 2,
                "rms_norm_eps": 1.5625e-7,
                "partial_rotary_factor": 0.5,
                "attention_bias": True,
            },
            partial_rope=True,
        ),
    ),
    Family(
        class_names=("Glm4MoeForCausalLM",),
        architectures={"silu": "glm4moe"},
        layer=_LAYER_OF_EXPERTS,
        keys=lambda config: mixture.keys_of_experts(config, sigmoid=True),
        unused=mixture.unused,
        drafting=mixture.drafting(_LAYER_OF_EXPERTS),
        drafting_key=mixture.DRAFTING_KEY,
        terms=Terms(
            defaults={
                "num_key_value_heads": 8,
                "rms_norm_eps": 1e-5,
                "partial_rotary_factor": 0.5,
                "first_k_dense_replace": 1,
                "n_shared_experts": 1,
                "norm_topk_prob": True,
                "n_group": 1,
                "topk_group": 1,
            },
            partial_rope=True,
            experts=ExpertTerms(("n_routed_experts", "num_experts")),
        ),
    ),
)
