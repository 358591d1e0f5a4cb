"""smollm3: llama, but every fourth layer does not rotate, which no key says.

Source: llama.cpp src/models/smollm3.cpp; transformers' SmolLM3.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_PERIOD = 4  # the last layer of each period does not rotate


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    rotation = None if (index + 1) % _PERIOD == 0 else blocks.rotation_of(config)
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, rotation, scale=config.attention_scale),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "silu"),
        blocks.feed_forward_output(config),
    ]


ARCHITECTURES = (Architecture(("smollm3",), _layer, rope_halves=False),)
