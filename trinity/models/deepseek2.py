"""deepseek2: DeepSeek V2 to V3.1 and what is built like them: latent attention, experts.

Keys and values of all heads follow from ``kv_lora_rank`` values of a token, and the cache holds
these. Today's files have the matrices that lead from a head's query to them, and from them to its
values; older ones have one that makes every head's keys and values, which the cache then holds.
YaRN stretches the rotation of a head's last values and leaves its magnitude; the scores grow.
The norms of latents add an epsilon of their own, whatever the file says of the others.
Source: llama.cpp src/models/deepseek2.cpp; transformers' DeepseekV2 and DeepseekV3.
"""

from __future__ import annotations

import math
from dataclasses import replace

from trinity.config import LatentConfig, ModelConfig
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import (
    Attention,
    Copy,
    HeadLinear,
    Linear,
    Norm,
    Operation,
    Product,
    Rope,
    Rotation,
)

_LATENT_EPSILON = 1e-6  # transformers' DeepseekV3RMSNorm has it where no other is given


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    if config.latent is None:
        raise TypeError(f"{config.architecture} is to run without latent attention")
    dense = config.experts is None or index < config.experts.first_dense_layers
    attention = _expanded if has("attn_kv_b") else _absorbed
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *attention(config, config.latent),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *(_dense(config) if dense else _experts(config, has)),
    ]


def _drafting(config: ModelConfig, has: Has) -> list[Operation]:
    """A pair to one row, then a layer like the last one."""
    return [*blocks.drafting_pair(config), *_layer(config, config.num_layers, has)]


def _absorbed(config: ModelConfig, latent: LatentConfig) -> list[Operation]:
    """One head of keys: the latent values, and behind them those that rotate."""
    heads, rank, turned = config.num_heads, latent.kv_lora_rank, config.rope_dim
    plain, size = latent.key_dim - turned, rank + turned
    return [
        *_queries(config, latent, "heads", Product("attn_kv_a_mqa", "k", size)),
        Norm("k", "attn_kv_a_norm", "k", rank, eps=_LATENT_EPSILON),
        HeadLinear("heads", "q", "attn_k_b", heads, rank, plain, latent.key_dim, size),
        Copy("heads", "q", heads, turned, latent.key_dim, size, x_first=plain, out_first=rank),
        Rope(heads, 1, size, _rotation(config), first=rank, value_dim=rank, value="k"),
        Attention(heads, 1, size, _scale(config, latent), value_dim=rank),
        HeadLinear(
            "a", "values", "attn_v_b", heads, latent.value_dim, rank, rank, latent.value_dim
        ),
        _output(config, "values", latent),
    ]


def _expanded(config: ModelConfig, latent: LatentConfig) -> list[Operation]:
    """Keys and values of every head; what rotates of a key is the same in all."""
    heads, rank, turned = config.num_heads, latent.kv_lora_rank, config.rope_dim
    size, values = latent.key_dim, latent.value_dim
    plain = size - turned
    both = plain + values
    return [
        *_queries(config, latent, "q", Product("attn_kv_a_mqa", "latent", rank + turned)),
        Norm("latent", "attn_kv_a_norm", "latent", rank, eps=_LATENT_EPSILON),
        Linear("latent", rank, (Product("attn_kv_b", "heads", heads * both),)),
        Copy("heads", "k", heads, plain, both, size),
        Copy("latent", "k", heads, turned, 0, size, x_first=rank, out_first=plain),
        Copy("heads", "v", heads, values, both, values, x_first=plain),
        Rope(heads, heads, size, _rotation(config), first=plain, value_dim=values),
        Attention(heads, heads, size, _scale(config, latent), value_dim=values),
        _output(config, "a", latent),
    ]


def _queries(config: ModelConfig, latent: LatentConfig, out: str, keys: Product) -> list[Operation]:
    """h to every head's query, by way of fewer values in the large models, and to ``keys``."""
    size, rank = config.num_heads * latent.key_dim, latent.q_lora_rank
    if not rank:
        return [Linear("h", config.hidden_size, (Product("attn_q", out, size), keys))]
    return [
        Linear("h", config.hidden_size, (Product("attn_q_a", "q_latent", rank), keys)),
        Norm("q_latent", "attn_q_a_norm", "q_latent", rank, eps=_LATENT_EPSILON),
        Linear("q_latent", rank, (Product("attn_q_b", out, size),)),
    ]


def _output(config: ModelConfig, x: str, latent: LatentConfig) -> Linear:
    product = Product("attn_output", "x", config.hidden_size)
    return Linear(x, config.num_heads * latent.value_dim, (product,), add=True)


def _multiplier(config: ModelConfig) -> float:
    """mscale_all_dim, of which the converter writes a tenth; 0: the file has none."""
    return config.rope_scaling.yarn_log_multiplier / 0.1


def _rotation(config: ModelConfig) -> Rotation:
    rotation = blocks.rotation_of(config)
    if not config.rope_scaling.yarn_log_multiplier:
        return rotation
    # mscale and mscale_all_dim, whose quotient it would be times, are equal in all models.
    return replace(rotation, scaling=replace(config.rope_scaling, yarn_log_multiplier=1.0))


def _scale(config: ModelConfig, latent: LatentConfig) -> float:
    scaling = config.rope_scaling
    growth = 1.0
    if scaling.type == "yarn" and scaling.factor > 1:
        growth = 1 + 0.1 * _multiplier(config) * math.log(scaling.factor)
    return growth**2 / math.sqrt(latent.key_dim)


def _dense(config: ModelConfig) -> list[Operation]:
    return [*blocks.feed_forward(config, "silu"), blocks.feed_forward_output(config)]


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    return [
        *expert_blocks.routed(config, has, "silu", normalize=False),
        *expert_blocks.shared_expert(config, "silu"),
    ]


ARCHITECTURES = (
    Architecture(
        ("deepseek2",), _layer, rope_halves=False, needs=(("latent", "attention.kv_lora_rank"),),
        # Beside attn_kv_b some files have what it is made of.
        unread=frozenset({"attn_k_b.weight", "attn_v_b.weight"}), drafting=_drafting,
    ),
)  # fmt: skip
