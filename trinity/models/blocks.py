"""What most families' layers have in common: projections, attention, a gated feed-forward."""

from __future__ import annotations

import math

from trinity.config import ModelConfig
from trinity.models.architecture import Has
from trinity.models.operations import (
    Attention,
    Gated,
    Linear,
    Norm,
    Operation,
    Product,
    Rope,
    Rotation,
)


def rotation_of(config: ModelConfig) -> Rotation:
    """The rotation that the configuration describes, with llama 3's factors where there are any."""
    return Rotation(
        config.rope_theta, config.rope_dim, config.rope_scaling, factors="rope_freqs.weight"
    )


def norm(config: ModelConfig, x: str, weight: str, out: str, *, add: bool = False) -> Norm:
    """A norm of rows of ``hidden_size``."""
    return Norm(x, weight, out, config.hidden_size, add=add)


def projections(config: ModelConfig, has: Has) -> list[Operation]:
    """h to q, k and v, by a weight each or by one that holds the rows of all three.

    Each head of q and k is normalized where the file has weights for that.
    """
    query, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    values = config.num_kv_heads * (config.value_dim or config.head_dim)
    products = (
        Product("attn_q", "q", query),
        Product("attn_k", "k", keys),
        Product("attn_v", "v", values),
    )
    if has("attn_qkv"):
        products = (
            Product("attn_qkv", "q", query),
            Product("attn_qkv", "k", keys, first=query),
            Product("attn_qkv", "v", values, first=query + keys),
        )
    operations: list[Operation] = [Linear("h", config.hidden_size, products)]
    if has("attn_q_norm"):
        operations.append(Norm("q", "attn_q_norm", "q", config.head_dim, config.num_heads))
    if has("attn_k_norm"):
        operations.append(Norm("k", "attn_k_norm", "k", config.head_dim, config.num_kv_heads))
    return operations


def attention(
    config: ModelConfig, rotation: Rotation | None, *, window: int = 0, scale: float | None = None
) -> list[Operation]:
    """Rotation and attention; ``scale`` is 1 / sqrt(head_dim) where it is not given."""
    sizes = config.num_heads, config.num_kv_heads, config.head_dim
    if scale is None:
        scale = 1 / math.sqrt(config.head_dim)
    return [
        Rope(*sizes, rotation, value_dim=config.value_dim),
        Attention(*sizes, scale, window, value_dim=config.value_dim),
    ]


def attention_output(config: ModelConfig, out: str = "x", *, add: bool = True) -> Linear:
    """a to the residual stream, or to another buffer."""
    product = Product("attn_output", out, config.hidden_size)
    width = config.num_heads * (config.value_dim or config.head_dim)
    return Linear("a", width, (product,), add=add)


def feed_forward(config: ModelConfig, activation: str, *, fused: bool = False) -> list[Operation]:
    """h to act(gate) * up; ``fused``: one weight has the rows of both, the gate's first."""
    size = config.intermediate_size
    products = (Product("ffn_gate", "gate", size), Product("ffn_up", "up", size))
    if fused:
        products = (Product("ffn_up", "gate", size), Product("ffn_up", "up", size, first=size))
    return [Linear("h", config.hidden_size, products), Gated(activation, size)]


def feed_forward_output(config: ModelConfig, out: str = "x", *, add: bool = True) -> Linear:
    """act(gate) * up to the residual stream, or to another buffer."""
    product = Product("ffn_down", out, config.hidden_size)
    return Linear("gate", config.intermediate_size, (product,), add=add)
