"""bailingmoe2 (Ling and Ring 2.0, Sarvam 30B): norms over heads, experts after dense layers.

Experts are chosen by sigmoid, from the best groups, with a bias that only affects the choice. In
Ling's class a part of each head rotates, and the weight of a single expert is not normalized.
Source: llama.cpp src/models/bailingmoe2.cpp and its conversion; the published class of Ling, and
transformers' SarvamMoE.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

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

_BIAS = tensor("mlp.gate.expert_bias")
_LAYER: Table = pre_norm_layer(
    {
        "attn_qkv": at("attention.query_key_value", bias="use_qkv_bias"),
        "attn_output": at("attention.dense", bias="use_bias"),
        "attn_q_norm": "attention.query_layernorm",
        "attn_k_norm": "attention.key_layernorm",
    },
    {**mixture.FEED_FORWARD, "exp_probs_b.bias": _BIAS},
)


def _centered(bias: NDArray[np.float32]) -> NDArray[np.float32]:
    """Subtract the mean, as converters of Sarvam's files do; the choice stays the same."""
    centered: NDArray[np.float32] = bias - bias.mean()
    return centered


_CENTERED: Table = {**_LAYER, "exp_probs_b.bias": replace(_BIAS, change=_centered)}


def _keys(config: ModelConfig, values: Values) -> Keys:
    """Return the keys of Ling's class, which ignores norm_topk_prob."""
    refuse_other(
        values,
        {
            "score_function": (None, "sigmoid"),
            "norm_head": (None, False),
            "norm_topk_prob": (True,),
            "moe_router_enable_expert_bias": (None, True),
        },
    )
    several = config.experts is not None and config.experts.num_experts_per_tok > 1
    return {**_keys_of_both(config, values), "expert_normalize": several or None}


def _keys_of_both(config: ModelConfig, values: Values) -> Keys:
    refuse_other(values, {"use_qk_norm": (None, True)})
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


_LING = Family(
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
    older={"n_shared_experts": "num_shared_experts"},  # the class's word
)
FAMILIES = (
    _LING,
    replace(
        _LING,
        classes={"SarvamMoEForCausalLM": "bailingmoe2"},
        tokenizer="sarvam-moe",
        layer=_CENTERED,
        keys=_keys_of_both,
        experts=ExpertTerms(("num_experts", "n_routed_experts", "num_local_experts")),
        defaults={
            "first_k_dense_replace": 1,
            "head_dim": 64,
            "n_group": 1,
            "norm_topk_prob": True,
            "num_key_value_heads": 4,
            "rope_theta": 8e6,
            "routed_scaling_factor": 2.5,
            "tie_word_embeddings": False,
            "topk_group": 1,
        },
        older={"n_shared_experts": "num_shared_experts", "use_qkv_bias": "attention_bias"},
    ),
)
