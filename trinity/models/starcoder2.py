"""starcoder2: norms with a mean, biases everywhere, GELU without a gate.

Source: llama.cpp src/models/starcoder2.cpp; transformers' Starcoder2.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h", kind="layer"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config), window=config.window_of(index, 0)),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h", kind="layer"),
        *blocks.feed_forward(config, "gelu", form="up"),
        blocks.feed_forward_output(config),
    ]


ARCHITECTURES = (Architecture(("starcoder2",), _layer, rope_halves=True, norm="layer"),)
