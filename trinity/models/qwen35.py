"""qwen35, qwen35moe and qwen3next: three layers of the gated delta rule, then one of attention.

A row of the query's projection holds a gate for each head beside the query; what attention gives is
multiplied by its sigmoid. The rotation for images equals the usual one where there is text alone.
qwen3next pairs heads of values with those of keys in order and holds beta and alpha in one weight,
the others pair them in turns.
Source: llama.cpp src/models/qwen35.cpp, qwen35moe.cpp and qwen3next.cpp; transformers' Qwen3Next,
Qwen3_5 and Qwen3_5Moe.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trinity.config import ModelConfig, SSMConfig
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import (
    CausalConv,
    Copy,
    DeltaRule,
    Gated,
    Linear,
    Norm,
    Operation,
    Product,
)

_L2_EPS = 1e-6
Branch = Callable[[ModelConfig, SSMConfig], list[Operation]]


def _layer(config: ModelConfig, index: int, has: Has, *, tiled: bool) -> list[Operation]:
    ssm = config.ssm
    if ssm is None:
        raise TypeError(f"{config.architecture} is to run without a recurrent state")
    recurrent = config.recurrent_layers or tuple(
        (layer + 1) % 4 != 0 for layer in range(config.num_layers)
    )
    branch = _delta_rule(config, ssm, has, tiled) if recurrent[index] else _attention(config)
    return _with_feed_forward(config, has, branch)


def _with_feed_forward(config: ModelConfig, has: Has, branch: list[Operation]) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *branch,
        blocks.norm(config, "x", "post_attention_norm", "h"),
        *(_experts(config, has) if config.experts else _feed_forward(config)),
    ]


def _drafting(config: ModelConfig, has: Has) -> list[Operation]:
    """A pair to one row, then a layer of attention."""
    return [*blocks.drafting_pair(config), *_with_feed_forward(config, has, _attention(config))]


def _delta_rule(config: ModelConfig, ssm: SSMConfig, has: Has, tiled: bool) -> list[Operation]:
    dim, heads = ssm.state_size, ssm.num_heads
    return [
        *_inputs(config, ssm, has),
        CausalConv("qkv", "ssm_conv1d", ssm.channels, ssm.conv_kernel, "silu"),
        # Queries and keys of length 1: the root of the sum of squares instead of their mean.
        Norm("qkv", "", "qkv", dim, 2 * ssm.num_groups, factor=dim**-0.5, eps=_L2_EPS / dim),
        DeltaRule(
            "qkv", "beta", "alpha", "o", heads, ssm.num_groups, dim, ssm.head_dim, dim**-0.5, tiled
        ),
        Norm("o", "ssm_norm", "o", ssm.head_dim, heads),
        Gated("silu", ssm.inner_size, gate="z", up="o"),
        Linear("z", ssm.inner_size, (Product("ssm_out", "x", config.hidden_size),), add=True),
    ]


def _inputs(config: ModelConfig, ssm: SSMConfig, has: Has) -> list[Operation]:
    """h to queries, keys and values, to z, and to beta and alpha of each head."""
    heads, groups, dim, inner = ssm.num_heads, ssm.num_groups, ssm.state_size, ssm.inner_size
    split: list[Operation] = []
    products = [Product("attn_qkv", "qkv", ssm.channels), Product("attn_gate", "z", inner)]
    if has("ssm_in"):
        # Of older files: query, key, values and z of each head of keys.
        of_group = inner // groups
        step = 2 * dim + 2 * of_group
        products = [Product("ssm_in", "qkvz", groups * step)]
        split = [
            Copy("qkvz", "qkv", groups, dim, step, dim),
            Copy("qkvz", "qkv", groups, dim, step, dim, dim, groups * dim),
            Copy("qkvz", "qkv", groups, of_group, step, of_group, 2 * dim, 2 * groups * dim),
            Copy("qkvz", "z", groups, of_group, step, of_group, 2 * dim + of_group),
        ]
    if has("ssm_ba"):
        shared = heads // groups
        products.append(Product("ssm_ba", "ba", 2 * heads))
        split += [
            Copy("ba", "beta", groups, shared, 2 * shared, shared),
            Copy("ba", "alpha", groups, shared, 2 * shared, shared, shared),
        ]
    else:
        products += [Product("ssm_beta", "beta", heads), Product("ssm_alpha", "alpha", heads)]
    return [Linear("h", config.hidden_size, tuple(products)), *split]


def _attention(config: ModelConfig) -> list[Operation]:
    heads, dim = config.num_heads, config.head_dim
    products = (
        Product("attn_q", "qg", 2 * heads * dim),
        Product("attn_k", "k", config.num_kv_heads * dim),
        Product("attn_v", "v", config.num_kv_heads * (config.value_dim or dim)),
    )
    return [
        Linear("h", config.hidden_size, products),
        Copy("qg", "q", heads, dim, 2 * dim, dim),
        Copy("qg", "g", heads, dim, 2 * dim, dim, dim),
        Norm("q", "attn_q_norm", "q", dim, heads),
        Norm("k", "attn_k_norm", "k", dim, config.num_kv_heads),
        *blocks.attention(config, blocks.rotation_of(config), scale=config.attention_scale),
        Gated("sigmoid", heads * dim, gate="g", up="a"),
        Linear("g", heads * dim, (Product("attn_output", "x", config.hidden_size),), add=True),
    ]


def _feed_forward(config: ModelConfig) -> list[Operation]:
    return [*blocks.feed_forward(config, "silu"), blocks.feed_forward_output(config)]


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    return [
        *expert_blocks.routed(config, has, "silu", size=expert_blocks.size_of(config)),
        *expert_blocks.shared_expert(config, "silu", size=config.intermediate_size, gated=True),
    ]


def _architecture(name: str, *needs: tuple[str, str], tiled: bool = True) -> Architecture:
    return Architecture(
        (name,), partial(_layer, tiled=tiled), rope_halves=True,
        needs=(("ssm", "ssm.state_size"), *needs), drafting=_drafting,
    )  # fmt: skip


ARCHITECTURES = (
    _architecture("qwen35"),
    _architecture("qwen35moe", expert_blocks.NEEDED),
    _architecture("qwen3next", expert_blocks.NEEDED, tiled=False),
)
