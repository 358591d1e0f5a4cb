"""llama: Llama 1 to 3, Mistral, Mixtral, TinyLlama, and ternary models stored as such.

Source: llama.cpp src/models/llama.cpp; its converters permute Q and K rows so that neighbouring
dimensions rotate together.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def layer(
    config: ModelConfig, index: int, has: Has, *, head_norms: bool | None = None
) -> list[Operation]:
    """A layer of llama, and of the families that differ from it in names and biases alone.

    ``head_norms``: see ``blocks.projections``.
    """
    return [
        *attention_branch(config, index, has, head_norms=head_norms),
        *blocks.feed_forward(config, "silu"),
        blocks.feed_forward_output(config),
    ]


def attention_branch(
    config: ModelConfig, index: int, has: Has, *, head_norms: bool | None = None
) -> list[Operation]:
    """A layer up to h, the input of its feed-forward."""
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has, head_norms=head_norms),
        *blocks.attention(
            config,
            blocks.rotation_of(config),
            window=config.window_of(index, 0),
            scale=config.attention_scale,
        ),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
    ]


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    if config.experts is None:
        return layer(config, index, has)
    return [
        *attention_branch(config, index, has),
        *expert_blocks.routed(config, has, "silu", size=config.intermediate_size),
    ]


ARCHITECTURES = (Architecture(("llama",), _layer, rope_halves=False),)
