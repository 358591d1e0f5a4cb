"""phi3: Phi-3, 3.5, 4 and 4-mini. One weight for q, k and v, one for gate and up; longrope.

A file with factors of its rotations (longrope) has two sets: one for contexts up to the original
length, one for longer ones.
Source: llama.cpp src/models/phi3.cpp; transformers' Phi3, whose window llama.cpp leaves out.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation, Rotation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    rotation = Rotation(
        config.rope_theta, config.rope_dim, config.rope_scaling,
        factors="rope_factors_short.weight", long_factors="rope_factors_long.weight",
    )  # fmt: skip
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, rotation, window=config.window_of(index, 0)),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "silu", form="fused"),
        blocks.feed_forward_output(config),
    ]


ARCHITECTURES = (Architecture(("phi3",), _layer, rope_halves=True),)
