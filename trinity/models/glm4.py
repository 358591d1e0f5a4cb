"""glm4: norms before and behind each branch; gate and up in one weight; partial rotation.

Source: llama.cpp src/models/glm4.cpp; transformers' Glm4.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config)),
        blocks.attention_output(config, "h", add=False),
        blocks.norm(config, "h", "post_attention_norm", "x", add=True),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "silu", form="fused"),
        blocks.feed_forward_output(config, "h", add=False),
        blocks.norm(config, "h", "post_ffw_norm", "x", add=True),
    ]


ARCHITECTURES = (Architecture(("glm4",), _layer, rope_halves=False),)
