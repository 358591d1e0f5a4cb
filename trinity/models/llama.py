"""llama: Llama 1 to 3, Mistral, Mixtral, TinyLlama, and ternary models stored as such.

Source: llama.cpp src/models/llama.cpp; its converters permute Q and K rows so that neighbouring
dimensions rotate together.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    """A layer of llama, and of the families that differ from it in names and biases alone."""
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config), window=config.sliding_window),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "silu"),
        blocks.feed_forward_output(config),
    ]


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    if config.experts is None:
        return layer(config, index, has)
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config), window=config.sliding_window),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *expert_blocks.routed(config, has, "silu", size=config.intermediate_size),
    ]


ARCHITECTURES = (Architecture(("llama",), _layer, rope_halves=False),)
