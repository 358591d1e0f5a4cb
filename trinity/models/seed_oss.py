"""seed_oss (Seed-OSS 36B): llama with biases on q, k and v.

The norm before the feed-forward is called ``post_attention_norm``.
Source: llama.cpp src/models/seed-oss.cpp; transformers' SeedOss.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import attention, gated, pre_norm_layer
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *blocks.attention_branch(config, has, ffn_norm="post_attention_norm"),
        *blocks.feed_forward(config, "silu"),
    ]


ARCHITECTURES = (Architecture(("seed_oss",), _layer, rope_halves=True),)

# -- In transformers' checkpoints --

FAMILY = Family(
    classes={"SeedOssForCausalLM": "seed_oss"},
    layer=pre_norm_layer(attention(bias="attention_bias"), gated(), ffn_norm="post_attention_norm"),
    defaults={"head_dim": 128, "num_key_value_heads": 8, "attention_bias": True},
)
