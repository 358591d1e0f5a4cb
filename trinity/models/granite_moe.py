"""granitemoe: Granite's four scales, experts, and in some models one that every token takes.

Source: llama.cpp src/models/granite.cpp; transformers' GraniteMoe and GraniteMoeShared.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Linear, Operation, Product


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    residual = config.residual_scale or 1.0
    rotation = blocks.rotation_of(config) if config.rope_finetuned else None
    width = config.num_heads * config.head_dim
    output = (Product("attn_output", "x", config.hidden_size),)
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, rotation, scale=config.attention_scale or None),
        Linear("a", width, output, add=True, scale=residual),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *expert_blocks.routed(config, has, "silu", size=config.intermediate_size, scale=residual),
        *expert_blocks.shared_expert(config, "silu", scale=residual),
    ]


ARCHITECTURES = (
    Architecture(
        ("granitemoe",), _layer, rope_halves=False,
        embedding_scale=lambda config: config.embedding_scale or 1.0,
        logit_scale=lambda config: 1 / config.logit_scale,
        needs=(expert_blocks.NEEDED, ("logit_scale", "logit_scale")),
    ),
)  # fmt: skip
