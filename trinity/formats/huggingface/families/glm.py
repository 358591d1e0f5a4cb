"""GLM 4 of 2025: norms before and behind attention and feed-forward; gate and up are one tensor.

GLM 4.5 to 4.7 have norms before them only, and experts as DeepSeek V3 has them.
"""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.blocks import attention, head_norms, linear, norm
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.stored import Module


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, width = config.hidden_size, config.intermediate_size
    yield from norm("attn_norm", "input_layernorm", hidden)
    yield from attention(config, bias=config.values.flag("attention_bias"))
    yield from norm("post_attention_norm", "post_self_attn_layernorm", hidden)
    yield from norm("ffn_norm", "post_attention_layernorm", hidden)
    yield from linear("ffn_up", "mlp.gate_up_proj", 2 * width, hidden)
    yield from linear("ffn_down", "mlp.down_proj", hidden, width)
    yield from norm("post_ffw_norm", "post_mlp_layernorm", hidden)


def _layer_of_experts(config: HFConfig, index: int) -> Iterator[Module]:
    yield from norm("attn_norm", "input_layernorm", config.hidden_size)
    yield from attention(config, bias=config.values.flag("attention_bias"))
    if config.values.flag("use_qk_norm"):
        yield from head_norms(config)
    yield from norm("post_attention_norm", "post_attention_layernorm", config.hidden_size)
    yield from mixture.feed_forward(config, index, chosen_with_bias=True)


FAMILIES = (
    Family(
        class_names=("Glm4ForCausalLM",),
        architectures={"silu": "glm4"},
        layer=_layer,
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
        layer=_layer_of_experts,
        keys=lambda config: mixture.keys_of_experts(config, sigmoid=True),
        unused=mixture.unused,
        drafting=mixture.drafting(_layer_of_experts),
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
