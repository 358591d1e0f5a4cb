"""gemma3 (text): norms before and behind each branch, five windowed layers to a full one.

Windowed layers rotate by a table of their own. The converter adds the 1 of Gemma's norms to their
weights. Source: llama.cpp src/models/gemma3.cpp; transformers' Gemma3.
"""

from __future__ import annotations

import math

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation, Rotation

_PERIOD = 6  # the last layer of each period sees all positions
_WINDOWED_THETA = 10000.0
_LAYERS_OF_27B = 62


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    window = config.window_of(index, _PERIOD)
    rotation = blocks.rotation_of(config)
    if window:
        rotation = Rotation(config.rope_theta_swa or _WINDOWED_THETA, config.rope_dim)
    size = config.head_dim
    if config.num_layers == _LAYERS_OF_27B:
        size = config.hidden_size // config.num_heads
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, rotation, window=window, scale=1 / math.sqrt(size)),
        blocks.attention_output(config, "h", add=False),
        blocks.norm(config, "h", "post_attention_norm", "x", add=True),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "gelu"),
        blocks.feed_forward_output(config, "h", add=False),
        blocks.norm(config, "h", "post_ffw_norm", "x", add=True),
    ]


ARCHITECTURES = (
    Architecture(
        ("gemma3",), _layer, rope_halves=True, embedding_scale=lambda c: math.sqrt(c.hidden_size)
    ),
)
