"""phi2: attention and feed-forward side by side, from one norm with a mean; biases everywhere.

A part of each head rotates. Older files have one weight for q, k and v.
Source: llama.cpp src/models/phi2.cpp; transformers' Phi.
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
        *blocks.attention(config, blocks.rotation_of(config)),
        blocks.attention_output(config),
        *blocks.feed_forward(config, "gelu", form="up"),
        blocks.feed_forward_output(config),
    ]


ARCHITECTURES = (Architecture(("phi2",), _layer, rope_halves=True, norm="layer"),)
