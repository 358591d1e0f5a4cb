"""mistral3 (Ministral 3): llama with YaRN, and queries that grow with their position.

Source: llama.cpp src/models/mistral3.cpp; transformers' Ministral3.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation, Temperature


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    temperature = None
    if config.temperature_scale:
        length = config.rope_scaling.original_context_length or config.context_length
        temperature = Temperature(config.temperature_scale, length)
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(
            config,
            blocks.rotation_of(config),
            scale=config.attention_scale,
            window=config.window_of(index, 0),
            temperature=temperature,
        ),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "silu"),
        blocks.feed_forward_output(config),
    ]


ARCHITECTURES = (Architecture(("mistral3",), _layer, rope_halves=False),)
