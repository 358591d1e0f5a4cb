"""glm4moe: GLM 4.5 to 4.7; first layers dense, the others with experts; partial rotation.

Experts are chosen by sigmoid, with a bias that only chooses; their weights are what the file says.
The norm behind attention is that of the feed-forward: what it takes is not normalized again.
Source: llama.cpp src/models/glm4-moe.cpp; transformers' Glm4Moe.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    dense = index < expert_blocks.experts_of(config).first_dense_layers
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config)),
        blocks.attention_output(config),
        blocks.norm(config, "x", "post_attention_norm", "h"),
        *(_dense(config) if dense else _experts(config, has)),
    ]


def _drafting(config: ModelConfig, has: Has) -> list[Operation]:
    """A pair to one row, then a layer like the last one."""
    return [*blocks.drafting_pair(config), *_layer(config, config.num_layers, has)]


def _dense(config: ModelConfig) -> list[Operation]:
    return [*blocks.feed_forward(config, "silu"), blocks.feed_forward_output(config)]


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    return [
        *expert_blocks.routed(config, has, "silu", gating="sigmoid", normalize=False),
        *expert_blocks.shared_expert(config, "silu"),
    ]


ARCHITECTURES = (
    Architecture(
        ("glm4moe",), _layer, rope_halves=True, needs=(expert_blocks.NEEDED,), drafting=_drafting
    ),
)
