"""olmo2 (OLMo 2 and 3): norms behind the branches alone, and over the whole of q and of k.

OLMo 3 has three windowed layers to a full one; only full ones stretch their rotation.
Source: llama.cpp src/models/olmo2.cpp; transformers' Olmo2 and Olmo3.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Norm, Operation, Rotation

_PERIOD = 4  # the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    window = config.window_of(index, _PERIOD)
    rotation = blocks.rotation_of(config)
    if window:
        rotation = Rotation(config.rope_theta_swa or config.rope_theta, config.rope_dim)
    return [
        *blocks.projections(config, has, "x", head_norms=False),
        Norm("q", "attn_q_norm", "q", config.num_heads * config.head_dim),
        Norm("k", "attn_k_norm", "k", config.num_kv_heads * config.head_dim),
        *blocks.attention(config, rotation, window=window),
        blocks.attention_output(config, "h", add=False),
        blocks.norm(config, "h", "post_attention_norm", "x", add=True),
        *blocks.feed_forward(config, "silu", "x"),
        blocks.feed_forward_output(config, "h", add=False),
        blocks.norm(config, "h", "post_ffw_norm", "x", add=True),
    ]


ARCHITECTURES = (Architecture(("olmo2",), _layer, rope_halves=True),)
