"""hy_v3 (Hunyuan 3): norms over heads, and experts with a shared one after dense layers.

Experts are chosen by sigmoid, with a bias that only affects the choice.
Source: llama.cpp src/models/hy-v3.cpp and conversion/hunyuan.py; transformers' HYV3.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.table import (
    Table,
    at,
    attention,
    experts,
    gated,
    head_norms,
    pre_norm_layer,
    tensor,
)
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *blocks.attention_branch(config, has, head_norms=True),
        *_feed_forward(config, index, has),
    ]


def _feed_forward(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    """The first layers are dense; files of llama.cpp's converter do not say how many."""
    experts = expert_blocks.experts_of(config)
    if index < experts.first_dense_layers or not has("ffn_gate_inp"):
        return blocks.feed_forward(config, "silu")
    return [
        *expert_blocks.routed(config, has, "silu", gating="sigmoid", normalize=False),
        *expert_blocks.shared_expert(config, "silu", size=experts.intermediate_size),
    ]


def _drafting(config: ModelConfig, has: Has) -> list[Operation]:
    """Combine a pair into one row, then a layer like the last one."""
    return [*blocks.drafting_pair(config), *_layer(config, config.num_layers, has)]


ARCHITECTURES = (
    Architecture(("hy_v3",), _layer, rope_halves=True, needs=("experts",), drafting=_drafting),
)

# -- In transformers' checkpoints --

# The second names are those of transformers' class.
_SHARED = ("shared_mlp", "shared_experts")
_LAYER: Table = pre_norm_layer(
    {**attention(bias="attention_bias", output_bias="attention_bias"), **head_norms()},
    {
        **gated(),
        "ffn_gate_inp": at("mlp.router.gate", "mlp.gate"),
        "exp_probs_b.": tensor("mlp.expert_bias", "mlp.e_score_correction_bias"),
        **experts("mlp.experts"),
        **{
            f"ffn_{name}_shexp": at(*(f"mlp.{module}.{name}_proj" for module in _SHARED))
            for name in ("gate", "up", "down")
        },
    },
)
_DRAFTING: Table = {**_LAYER, "nextn.shared_head_norm": "final_layernorm"}


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(values, {"mlp_bias": (None, False), "route_norm": (None, True)})
    count = values.size("num_shared_experts", "num_shared_experts", 1)
    width = config.experts.intermediate_size if config.experts else 0
    dense = values.size("first_k_dense_replace", "first_dense_layers", 1, smallest=0)
    return {
        "first_dense_layers": mixture.listed_dense_layers(
            config, values, min(dense, config.num_layers)
        ),
        "num_shared_experts": count,
        "shared_intermediate_size": width * count,
        "expert_scale": values.real("router_scaling_factor", "expert_scale", 2.826),
        "expert_normalize": True,
        "expert_gating": mixture.SIGMOID,
    }


FAMILY = Family(
    classes={"HYV3ForCausalLM": "hy_v3"},
    layer=_LAYER,
    keys=_keys,
    unused=mixture.unused,
    drafting=mixture.drafting(_DRAFTING),
    drafting_key=mixture.DRAFTING_KEY,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-5,
        "rope_theta": 11_158_840.0,
        "tie_word_embeddings": False,
    },
    experts=ExpertTerms(("num_experts", "num_local_experts")),
)
