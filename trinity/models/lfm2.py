"""lfm2 and lfm2moe: short convolutions with two gates where a layer has no heads of keys.

lfm2moe has experts behind its first layers, chosen by sigmoids.
Source: llama.cpp src/models/lfm2.cpp; transformers' Lfm2 and Lfm2Moe.
"""

from __future__ import annotations

from dataclasses import replace

from trinity.config import ModelConfig
from trinity.errors import ConfigError
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import CausalConv, Gated, Linear, Operation, Product


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    experts = config.experts
    dense = experts is None or index < experts.first_dense_layers
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *_mixer(config, index, has),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *(_feed_forward(config) if dense else _experts(config, has)),
    ]


def _mixer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    if not config.kv_heads_of(index):
        return _short_convolution(config)
    config = replace(config, num_kv_heads=config.kv_heads_of(index))
    return [
        *blocks.projections(config, has, head_norms=True),
        *blocks.attention(config, blocks.rotation_of(config)),
        blocks.attention_output(config),
    ]


def _short_convolution(config: ModelConfig) -> list[Operation]:
    hidden, taps = config.hidden_size, config.short_conv_kernel
    if taps < 2:
        raise ConfigError(
            f"{config.architecture}.shortconv.l_cache is {taps}; it must be 2 or more"
        )
    products = (
        Product("shortconv.in_proj", "b", hidden),
        Product("shortconv.in_proj", "c", hidden, first=hidden),
        Product("shortconv.in_proj", "u", hidden, first=2 * hidden),
    )
    return [
        Linear("h", hidden, products),
        Gated("none", hidden, gate="u", up="b"),
        CausalConv("u", "shortconv.conv", hidden, taps),
        Gated("none", hidden, gate="c", up="u"),
        Linear("c", hidden, (Product("shortconv.out_proj", "x", hidden),), add=True),
    ]


def _feed_forward(config: ModelConfig) -> list[Operation]:
    return [*blocks.feed_forward(config, "silu"), blocks.feed_forward_output(config)]


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    return expert_blocks.routed(config, has, "silu", gating="sigmoid")


_CONVOLUTION = ("short_conv_kernel", "shortconv.l_cache")
ARCHITECTURES = tuple(
    Architecture(
        (name,), _layer, rope_halves=True, output_norm="token_embd_norm", needs=needs, mixed=True
    )
    for name, needs in (
        ("lfm2", (_CONVOLUTION,)),
        ("lfm2moe", (_CONVOLUTION, expert_blocks.NEEDED)),
    )
)
