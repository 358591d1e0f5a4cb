"""granite, granitemoe and granitehybrid: llama with four scales.

They are of embeddings, scores, branches and logits. granitemoe has experts, and in some models one
that every token takes. granitehybrid has Mamba-2 where a layer has no heads of keys.
Source: llama.cpp src/models/granite.cpp and granite-hybrid.cpp; transformers' Granite, GraniteMoe,
GraniteMoeShared and GraniteMoeHybrid.
"""

from __future__ import annotations

from dataclasses import replace

from trinity.config import ModelConfig
from trinity.models import blocks, expert_blocks, mamba_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *_mixer(config, index, has),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *(_experts(config, has) if config.experts else _feed_forward(config)),
    ]


def _mixer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    scale = config.residual_scale or 1.0
    if not config.kv_heads_of(index):
        return mamba_blocks.mamba(config, has, scale=scale)
    rotation = blocks.rotation_of(config) if config.rope_finetuned else None
    config = replace(config, num_kv_heads=config.kv_heads_of(index))
    return [
        *blocks.projections(config, has),
        *blocks.attention(config, rotation, scale=config.attention_scale),
        blocks.attention_output(config, scale=scale),
    ]


def _feed_forward(config: ModelConfig) -> list[Operation]:
    return [
        *blocks.feed_forward(config, "silu"),
        blocks.feed_forward_output(config, scale=config.residual_scale or 1.0),
    ]


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    scale = config.residual_scale or 1.0
    return [
        *expert_blocks.routed(config, has, "silu", size=config.intermediate_size, scale=scale),
        *expert_blocks.shared_expert(config, "silu", scale=scale),
    ]


def _architecture(name: str, *needs: tuple[str, str], mixed: bool = False) -> Architecture:
    return Architecture(
        (name,), _layer, rope_halves=False,
        embedding_scale=lambda config: config.embedding_scale or 1.0,
        logit_scale=lambda config: 1 / config.logit_scale,
        needs=(("logit_scale", "logit_scale"), *needs), mixed=mixed,
    )  # fmt: skip


ARCHITECTURES = (
    _architecture("granite"),
    _architecture("granitemoe", expert_blocks.NEEDED),
    _architecture("granitehybrid", mamba_blocks.NEEDED, mixed=True),
)
