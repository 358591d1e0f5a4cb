"""gemma, gemma2, gemma3 (text), gemma-embedding: GELU, embeddings times the root of their width.

From 2 on there are norms before and behind each branch, and windowed layers. gemma2 caps scores and
logits. gemma3's windowed layers rotate by a table of their own; gemma-embedding is gemma3 as an
encoder, whose windows reach to both sides. The converter adds the 1 of Gemma's
norms to their weights.
Source: llama.cpp src/models/gemma.cpp, gemma2.cpp, gemma3.cpp; transformers' Gemma, Gemma2, Gemma3.
"""

from __future__ import annotations

import math
from functools import partial

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation, Rotation

# The last layer of each period sees all positions.
_PERIOD_OF_2, _PERIOD_OF_3 = 2, 6
_LAYERS_OF_2_27B, _LAYERS_OF_3_27B = 46, 62
# Where the file says nothing.
_WINDOW_OF_2, _SCORE_CAP_OF_2, _LOGIT_CAP_OF_2 = 4096, 50.0, 30.0
_WINDOWED_THETA_OF_3 = 10000.0


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config)),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "gelu"),
        blocks.feed_forward_output(config),
    ]


def _layer_of_2(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    window = config.window_of(index, _PERIOD_OF_2)
    attention = blocks.attention(
        config,
        blocks.rotation_of(config, window),
        window=window,
        scale=_scale(config, _LAYERS_OF_2_27B),
        softcap=_default(config.attn_logit_softcap, _SCORE_CAP_OF_2),
    )
    return _between_norms(config, [*blocks.projections(config, has), *attention])


def _layer_of_3(
    config: ModelConfig, index: int, has: Has, *, encodes: bool = False
) -> list[Operation]:
    window = config.window_of(index, _PERIOD_OF_3)
    rotation = blocks.rotation_of(config)
    if window:
        rotation = Rotation(config.rope_theta_swa or _WINDOWED_THETA_OF_3, config.rope_dim)
    attention = blocks.attention(
        config, rotation, window=0 if encodes else window, both_ways=encodes,
        reach=window // 2 if encodes else 0, scale=_scale(config, _LAYERS_OF_3_27B),
    )  # fmt: skip
    return _between_norms(config, [*blocks.projections(config, has, head_norms=True), *attention])


def _between_norms(config: ModelConfig, attention: list[Operation]) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *attention,
        blocks.attention_output(config, "h", add=False),
        blocks.norm(config, "h", "post_attention_norm", "x", add=True),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "gelu"),
        blocks.feed_forward_output(config, "h", add=False),
        blocks.norm(config, "h", "post_ffw_norm", "x", add=True),
    ]


def _default(value: float | None, default: float) -> float:
    return default if value is None else value


def _scale(config: ModelConfig, layers_of_27b: int) -> float:
    """Of scores; the 27B models have another one than their heads' width gives, without a key."""
    if config.attention_scale:
        return config.attention_scale
    if config.num_layers == layers_of_27b:
        return 1 / math.sqrt(config.hidden_size // config.num_heads)
    return 1 / math.sqrt(config.head_dim)


def _embedding_scale(config: ModelConfig) -> float:
    return math.sqrt(config.hidden_size)


ARCHITECTURES = (
    Architecture(("gemma",), _layer, rope_halves=True, embedding_scale=_embedding_scale),
    Architecture(
        ("gemma2",), _layer_of_2, rope_halves=True, embedding_scale=_embedding_scale,
        logit_softcap=lambda config: _default(config.final_logit_softcap, _LOGIT_CAP_OF_2),
        window=_WINDOW_OF_2, needs=(("sliding_window", "attention.sliding_window"),),
    ),
    Architecture(("gemma3",), _layer_of_3, rope_halves=True, embedding_scale=_embedding_scale),
    Architecture(
        ("gemma-embedding",), partial(_layer_of_3, encodes=True), rope_halves=True,
        embedding_scale=_embedding_scale, encodes=True,
    ),
)  # fmt: skip
