"""glm4moe: GLM 4.5 to 4.7, the text of 4.5V and 4.6V, and Solar Open.

The first layers are dense, the others have experts; a part of each head rotates.
Experts are chosen by sigmoid, with a bias that only affects the choice; the file says how they are
weighted. The norm after attention is that of the feed-forward, so the input of the feed-forward is
not normalized twice.
Source: llama.cpp src/models/glm4-moe.cpp; transformers' Glm4Moe.
"""

from __future__ import annotations

from dataclasses import replace

from trinity.config import ModelConfig
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.rope import rope_sections
from trinity.formats.huggingface.table import attention, head_norms, pre_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.glm4 import SECTIONS
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


def _keys(config: ModelConfig, values: Values) -> Keys:
    return mixture.keys_of_experts(config, values, sigmoid=True)


def _vision_keys(config: ModelConfig, values: Values) -> Keys:
    sections = rope_sections(values, SECTIONS)
    return {**_keys(config, values), "rope.dimension_sections": sections}


_GLM = Family(
    classes={"Glm4MoeForCausalLM": "glm4moe"},
    layer=_LAYER,
    keys=_keys,
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
_DEFAULTS = {**_GLM.defaults, "attention_bias": True}
FAMILIES = (
    _GLM,
    # GLM 4.5V and 4.6V
    replace(
        _GLM,
        classes={},
        wrappers={"Glm4vMoeForConditionalGeneration": "glm4moe"},
        keys=_vision_keys,
        rope_types=("mrope",),
        defaults=_DEFAULTS,
    ),
    # The class has experts in every layer, no norms of heads, and no width of dense layers.
    replace(
        _GLM,
        classes={"SolarOpenForCausalLM": "glm4moe"},
        drafting=(),
        defaults={
            **_GLM.defaults,
            "first_k_dense_replace": 0,
            "head_dim": 128,
            "intermediate_size": 10240,
            "partial_rotary_factor": 1.0,
            "rope_theta": 1e6,
            "tie_word_embeddings": False,
        },
    ),
)
