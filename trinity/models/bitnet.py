"""bitnet and bitnet-b1.58 (also called bitnet-25): sub-norms before attn_output and ffn_down.

The two differ in the feed-forward's activation alone: SiLU in the 1bitLLM reproductions
(``bitnet``), squared ReLU in BitNet b1.58 2B-4T.
Source: llama.cpp src/models/bitnet.cpp; ik_llama.cpp build_bitnet_158; transformers' BitNet.
"""

from __future__ import annotations

from functools import partial

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Norm, Operation


def _layer(config: ModelConfig, index: int, has: Has, activation: str) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config), window=config.window_of(index, 0)),
        Norm("a", "attn_sub_norm", "a", config.num_heads * config.head_dim),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, activation),
        Norm("gate", "ffn_sub_norm", "gate", config.intermediate_size),
        blocks.feed_forward_output(config),
    ]


ARCHITECTURES = (
    Architecture(("bitnet",), partial(_layer, activation="silu"), True),
    Architecture(("bitnet-b1.58", "bitnet-25"), partial(_layer, activation="relu2"), True),
)
