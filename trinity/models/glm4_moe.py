"""glm4moe: GLM 4.5 to 4.7; first layers dense, the others with experts; partial rotation.

Experts are chosen by sigmoid, with a bias that only affects the choice; the file says how they are
weighted. The norm after attention is that of the feed-forward, so the input of the feed-forward is
not normalized twice.
Source: llama.cpp src/models/glm4-moe.cpp; transformers' Glm4Moe.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import attention, head_norms, pre_norm_layer
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *blocks.attention_branch(config, has, ffn_norm="post_attention_norm"),
        *expert_blocks.after_dense_layers(config, index, has, gating="sigmoid"),
    ]


def _drafting(config: ModelConfig, has: Has) -> list[Operation]:
    """Combine a pair into one row, then a layer like the last one."""
    return [*blocks.drafting_pair(config), *_layer(config, config.num_layers, has)]


ARCHITECTURES = (
    Architecture(("glm4moe",), _layer, rope_halves=True, needs=("experts",), drafting=_drafting),
)

# -- In transformers' checkpoints --

_LAYER = pre_norm_layer(
    {**attention(bias="attention_bias"), **head_norms(when="use_qk_norm")},
    mixture.CHOSEN_WITH_BIAS,
    ffn_norm="post_attention_norm",
)


FAMILY = Family(
    classes={"Glm4MoeForCausalLM": "glm4moe"},
    layer=_LAYER,
    keys=lambda config, values: mixture.keys_of_experts(config, values, sigmoid=True),
    unused=mixture.unused,
    drafting=mixture.drafting(_LAYER),
    drafting_key=mixture.DRAFTING_KEY,
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
)
