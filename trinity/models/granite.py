"""granite: llama with four scales: of embeddings, scores, what a branch adds, and logits.

Source: llama.cpp src/models/granite.cpp; transformers' Granite.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    rotation = blocks.rotation_of(config) if config.rope_finetuned else None
    scale = config.residual_scale or 1.0
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, rotation, scale=config.attention_scale),
        blocks.attention_output(config, scale=scale),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "silu"),
        blocks.feed_forward_output(config, scale=scale),
    ]


ARCHITECTURES = (
    Architecture(
        ("granite",), _layer, rope_halves=False,
        embedding_scale=lambda config: config.embedding_scale or 1.0,
        logit_scale=lambda config: 1 / config.logit_scale,
        needs=(("logit_scale", "logit_scale"),),
    ),
)  # fmt: skip
