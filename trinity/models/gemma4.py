"""gemma4: Gemma 4's 31B, E2B and E4B (an embedding for each layer), 26B-A4B (experts).

Norms before and behind each branch, with plain weights, and one without weight over each head of v.
Windowed and full layers differ in the size of heads, their number for k and v, and the rotation, of
which full layers have a part alone. A layer without a weight for v takes k before its norm. The
last layers of some models have no keys and values of their own and read those of the last layer of
their kind that has. Experts work beside a feed-forward that every token takes, and their router has
a norm of its own.
Source: llama.cpp src/models/gemma4.cpp; transformers' Gemma4.
"""

from __future__ import annotations

import math

from trinity.config import ModelConfig
from trinity.errors import ConfigError
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has, TokenTable
from trinity.models.operations import (
    Attention,
    Copy,
    Gated,
    Linear,
    Norm,
    Operation,
    Product,
    Rope,
    Rotation,
    Scale,
)


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *_attention(config, index, has),
        blocks.norm(config, "h", "post_attention_norm", "x", add=True),
        *_feed_forward(config, index),
        *(_beside_experts(config, has) if config.experts else []),
        blocks.norm(config, "dense", "post_ffw_norm", "x", add=True),
        *_layer_embedding(config, index),
        *([Scale("x", config.hidden_size, weight="layer_output_scale")]
          if has("layer_output_scale") else []),
    ]  # fmt: skip


def _attention(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    window = _window(config, index)
    heads, kv_heads = config.num_heads, config.kv_heads_of(index)
    size, rotation = config.head_dim, blocks.rotation_of(config)
    if window:
        size = config.head_dim_swa or size
        theta = config.rope_theta_swa or config.rope_theta
        rotation = Rotation(theta, config.rope_dim_swa or size)
    source = _cache_of(config, index)
    query = Product("attn_q", "q", heads * size)
    operations: list[Operation] = []
    if source is None:
        operations += _projections(config, query, kv_heads, size, has)
    else:
        operations.append(Linear("h", config.hidden_size, (query,)))
    return [
        *operations,
        Norm("q", "attn_q_norm", "q", size, heads),
        Rope(heads, kv_heads, size, rotation, stores=source is None),
        Attention(heads, kv_heads, size, 1.0, window, cache_of=source),
        Linear("a", heads * size, (Product("attn_output", "h", config.hidden_size),)),
    ]


def _projections(
    config: ModelConfig, query: Product, kv_heads: int, size: int, has: Has
) -> list[Operation]:
    width = kv_heads * size
    products = [query, Product("attn_k", "k", width)]
    if has("attn_v"):
        products.append(Product("attn_v", "v", width))
    return [
        Linear("h", config.hidden_size, tuple(products)),
        *([] if has("attn_v") else [Copy("k", "v", 1, width, width, width)]),
        Norm("k", "attn_k_norm", "k", size, kv_heads),
        Norm("v", "", "v", size, kv_heads),
    ]


def _cache_of(config: ModelConfig, index: int) -> int | None:
    """The layer whose keys and values this one reads, None: its own."""
    own = config.num_layers - config.shared_kv_layers
    if index < own:
        return None
    window = _window(config, index)
    alike = [layer for layer in range(own) if _window(config, layer) == window]
    if not alike:
        raise ConfigError(
            f"gemma4.attention.shared_kv_layers is {config.shared_kv_layers}: layer {index} of "
            f"{config.num_layers} has no layer before these to share keys and values with; "
            "convert the model again"
        )
    return alike[-1]


def _window(config: ModelConfig, index: int) -> int:
    return config.window_of(index, 1)


def _feed_forward(config: ModelConfig, index: int) -> list[Operation]:
    size = config.intermediate_size_of(index)
    products = (Product("ffn_gate", "gate", size), Product("ffn_up", "up", size))
    return [
        blocks.norm(config, "x", "ffn_norm", "h"),
        Linear("h", config.hidden_size, products),
        Gated("gelu", size),
        Linear("gate", size, (Product("ffn_down", "dense", config.hidden_size),)),
    ]


def _beside_experts(config: ModelConfig, has: Has) -> list[Operation]:
    """Experts, and their sum onto the feed-forward's result."""
    hidden = config.hidden_size
    return [
        blocks.norm(config, "dense", "post_ffw_norm_1", "dense"),
        Norm("x", "ffn_gate_inp.scale", "h", hidden, factor=1 / math.sqrt(hidden)),
        expert_blocks.router(config),
        expert_blocks.route(config, has, "softmax", normalize=True),
        blocks.norm(config, "x", "pre_ffw_norm_2", "h"),
        *expert_blocks.mixture(config, has, "gelu", "h", add=False, scales_results=True),
        blocks.norm(config, "h", "post_ffw_norm_2", "dense", add=True),
    ]


def _layer_embedding(config: ModelConfig, index: int) -> list[Operation]:
    """The stream gates the token's embedding for this layer, which is added to it."""
    size, hidden = config.per_layer_input_size, config.hidden_size
    if not size:
        return []
    return [
        Linear("x", hidden, (Product("inp_gate", "layer_gate", size),)),
        Gated("gelu", size, gate="layer_gate", up="layer_inputs", first=index * size),
        Linear("layer_gate", size, (Product("proj", "h", hidden),)),
        blocks.norm(config, "h", "post_norm", "x", add=True),
    ]


def _tables(config: ModelConfig) -> tuple[TokenTable, ...]:
    size = config.per_layer_input_size
    if not size:
        return ()
    width = size * config.num_layers
    # Half of the sum's root of 2, the other half in the prologue's norm.
    return (TokenTable("per_layer_token_embd", "layer_inputs", width, math.sqrt(size / 2)),)


def _prologue(config: ModelConfig) -> list[Operation]:
    """The layers' embeddings: those of the token, and projections of its ordinary one."""
    size, hidden, layers = config.per_layer_input_size, config.hidden_size, config.num_layers
    if not size:
        return []
    product = Product("per_layer_model_proj", "projected", size * layers)
    return [
        Linear("x", hidden, (product,), scale=1 / math.sqrt(hidden)),
        Norm("projected", "per_layer_proj_norm", "layer_inputs", size, layers, add=True,
             factor=math.sqrt(0.5)),
    ]  # fmt: skip


ARCHITECTURES = (
    Architecture(
        ("gemma4",), _layer, rope_halves=True,
        embedding_scale=lambda config: math.sqrt(config.hidden_size),
        tables=_tables, prologue=_prologue,
        needs=(
            ("sliding_window", "attention.sliding_window"),
            ("sliding_window_pattern", "attention.sliding_window_pattern"),
        ),
        # Of layers that share keys and values, which some files have all the same.
        unread=frozenset({"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}),
    ),
)  # fmt: skip
