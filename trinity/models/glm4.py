"""glm4: norms before and after each branch; gate and up in one weight; partial rotation.

Source: llama.cpp src/models/glm4.cpp; transformers' Glm4.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import Table, attention
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return blocks.between_norms(
        config,
        [*blocks.projections(config, has), *blocks.plain_attention(config)],
        blocks.feed_forward(config, "silu", form="fused", out="h"),
    )


ARCHITECTURES = (Architecture(("glm4",), _layer, rope_halves=False),)

# -- In transformers' checkpoints --

_LAYER: Table = {
    "attn_norm": "input_layernorm",
    **attention(bias="attention_bias"),
    "post_attention_norm": "post_self_attn_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_mlp_layernorm",
}


FAMILY = Family(
    classes={"Glm4ForCausalLM": "glm4"},
    layer=_LAYER,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1.5625e-7,
        "partial_rotary_factor": 0.5,
        "attention_bias": True,
    },
    partial_rope=True,
)
