"""lfm2 and lfm2moe: short convolutions between two gates, and attention in some layers.

A layer without heads of keys is a convolution. The norm behind the last layer is named like one of
embeddings. lfm2moe's router takes sigmoids, with a bias for the choice alone.
Source: llama.cpp src/models/lfm2.cpp; transformers' Lfm2 and Lfm2Moe.
"""

from __future__ import annotations

from dataclasses import replace

from trinity.config import ModelConfig
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import CausalConv, Gated, Linear, Operation, Product


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    heads, experts = config.kv_heads_of(index), config.experts
    dense = experts is None or index < experts.first_dense_layers
    config = replace(config, num_kv_heads=heads)
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *(_attention(config, has) if heads else _short_convolution(config)),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *(_feed_forward(config) if dense else _experts(config, has)),
    ]


def _attention(config: ModelConfig, has: Has) -> list[Operation]:
    return [
        *blocks.projections(config, has, head_norms=True),
        *blocks.attention(config, blocks.rotation_of(config)),
        blocks.attention_output(config),
    ]


def _short_convolution(config: ModelConfig) -> list[Operation]:
    width, source = config.hidden_size, "shortconv.in_proj"
    products = (
        Product(source, "b", width),
        Product(source, "c", width, first=width),
        Product(source, "u", width, first=2 * width),
    )
    return [
        Linear("h", width, products),
        Gated("identity", width, gate="u", up="b"),
        CausalConv("u", "shortconv.conv", width, config.short_conv_kernel),
        Gated("identity", width, gate="u", up="c"),
        Linear("u", width, (Product("shortconv.out_proj", "x", width),), add=True),
    ]


def _feed_forward(config: ModelConfig) -> list[Operation]:
    return [*blocks.feed_forward(config, "silu"), blocks.feed_forward_output(config)]


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    return expert_blocks.routed(config, has, "silu", gating="sigmoid")


def _architecture(name: str, *needs: tuple[str, str]) -> Architecture:
    return Architecture(
        (name,), _layer, rope_halves=True, output_norm="token_embd_norm", mixed=True,
        needs=(("short_conv_kernel", "shortconv.l_cache"), *needs),
    )  # fmt: skip


ARCHITECTURES = (_architecture("lfm2"), _architecture("lfm2moe", expert_blocks.NEEDED))
