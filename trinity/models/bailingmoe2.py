"""bailingmoe2 (Ling and Ring 2.0): norms over heads, partial rotation, experts after dense layers.

Experts are chosen by sigmoid, from the best groups, with a bias that only affects the choice.
Source: llama.cpp src/models/bailingmoe2.cpp and its conversion; the published configuration.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.table import Table, at, pre_norm_layer, tensor
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *blocks.attention_branch(config, has, head_norms=True),
        *expert_blocks.after_dense_layers(config, index, has, gating="sigmoid"),
    ]


ARCHITECTURES = (Architecture(("bailingmoe2",), _layer, rope_halves=True, needs=("experts",)),)

# -- In transformers' checkpoints --

_LAYER: Table = pre_norm_layer(
    {
        "attn_qkv": at("attention.query_key_value", bias="use_qkv_bias"),
        "attn_output": at("attention.dense", bias="use_bias"),
        "attn_q_norm": "attention.query_layernorm",
        "attn_k_norm": "attention.key_layernorm",
    },
    {**mixture.FEED_FORWARD, "exp_probs_b.bias": tensor("mlp.gate.expert_bias")},
)


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "score_function": (None, "sigmoid"),
            "use_qk_norm": (None, True),
            "norm_head": (None, False),
            "moe_router_enable_expert_bias": (None, True),
        },
    )
    width = config.experts.intermediate_size if config.experts else 0
    count = values.size("n_shared_experts", "num_shared_experts", 1)
    shared = values.size(
        "moe_shared_expert_intermediate_size", "shared_intermediate_size", width * count
    )
    return {
        **mixture.keys_of_experts(config, values, sigmoid=True),
        "num_shared_experts": count,
        "shared_intermediate_size": shared,
    }


FAMILIES = (
    Family(
        classes={"BailingMoeV2ForCausalLM": "bailingmoe2"},
        layer=_LAYER,
        ends={
            "token_embd": at("model.word_embeddings", "model.embed_tokens"),
            "output_norm": "model.norm",
        },
        keys=_keys,
        unused=mixture.unused,
        partial_rope=True,
        experts=ExpertTerms(("num_experts",)),
        defaults={
            "partial_rotary_factor": 0.5,
            "first_k_dense_replace": 0,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
            "tie_word_embeddings": False,
        },
        older={"n_shared_experts": "num_shared_experts"},  # the class's word,
    ),
)
