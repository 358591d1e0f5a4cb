"""nemotron_h and nemotron_h_moe: layers of Mamba-2, of attention or of a feed-forward alone.

A layer without heads of keys and without a feed-forward is Mamba-2's, one without a feed-forward
attention, which has no rotation. A feed-forward has no gate, but a squared ReLU.
Source: llama.cpp src/models/nemotron-h.cpp; transformers' NemotronH.
"""

from __future__ import annotations

from dataclasses import replace

from trinity.config import ModelConfig
from trinity.models import blocks, expert_blocks, mamba_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    config = replace(
        config,
        num_kv_heads=config.kv_heads_of(index),
        intermediate_size=config.intermediate_size_of(index),
        layer_kv_heads=(),
        layer_intermediate_sizes=(),
    )
    return [blocks.norm(config, "x", "attn_norm", "h"), *_mixer(config, has)]


def _mixer(config: ModelConfig, has: Has) -> list[Operation]:
    if config.intermediate_size:
        with_experts = config.experts is not None and has("ffn_gate_inp")
        return _experts(config, has) if with_experts else _feed_forward(config)
    if not config.num_kv_heads:
        return mamba_blocks.mamba(config, has)
    return [
        *blocks.projections(config, has),
        *blocks.attention(config, None, scale=config.attention_scale),
        blocks.attention_output(config),
    ]


def _feed_forward(config: ModelConfig) -> list[Operation]:
    return [
        *blocks.feed_forward(config, "relu2", form="up"),
        blocks.feed_forward_output(config),
    ]


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    return [
        *expert_blocks.routed(config, has, "relu2", gating="sigmoid", gated=False),
        *expert_blocks.shared_expert(config, "relu2", form="up"),
    ]


ARCHITECTURES = (
    Architecture(
        ("nemotron_h",), _layer, rope_halves=False, needs=(mamba_blocks.NEEDED,), mixed=True
    ),
    Architecture(
        ("nemotron_h_moe",), _layer, rope_halves=False,
        needs=(mamba_blocks.NEEDED, expert_blocks.NEEDED), mixed=True,
    ),
)  # fmt: skip
