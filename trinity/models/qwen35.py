"""qwen35, qwen35moe and qwen3next: three gated delta rule layers, then one attention layer.

The query projection also has a gate for each head, after the head's query; the attention result is
multiplied by its sigmoid. In qwen3next, adjacent value heads share a key head, and one weight has
beta and alpha; in the others, value heads use the key heads cyclically.

Checkpoints store value heads that share a key head together; GGUF's qwen35 stores them cyclically.
Norm weights lack the 1 that is added to them, except in the delta rule.
Source: llama.cpp src/models/qwen35.cpp, qwen35moe.cpp and qwen3next.cpp; transformers' Qwen3Next,
Qwen3_5 and Qwen3_5Moe.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig, SSMConfig
from trinity.formats.config_limits import field_values
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.recurrent import convolution, decay, layer_kinds
from trinity.formats.huggingface.rope import rope_sections
from trinity.formats.huggingface.stored import Stored, View, heads_in_turns, rows
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Copy, Gated, Linear, Norm, Operation, Product
from trinity.models.qwen_moe import WITH_SHARED, check_routing
from trinity.models.recurrent_operations import CausalConv, DeltaRule

_L2_EPS = 1e-6
Branch = Callable[[ModelConfig, SSMConfig], list[Operation]]


def _layer(config: ModelConfig, index: int, has: Has, *, tiled: bool) -> list[Operation]:
    ssm = config.ssm
    if ssm is None:
        raise TypeError(f"{config.architecture} has no recurrent state in its configuration")
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
        *(_experts(config, has) if config.experts else blocks.feed_forward(config, "silu")),
    ]


def _drafting(config: ModelConfig, has: Has) -> list[Operation]:
    """Combine a pair into one row, then an attention layer."""
    return [*blocks.drafting_pair(config), *_with_feed_forward(config, has, _attention(config))]


def _delta_rule(config: ModelConfig, ssm: SSMConfig, has: Has, tiled: bool) -> list[Operation]:
    dim, heads = ssm.state_size, ssm.num_heads
    return [
        *_inputs(config, ssm, has),
        CausalConv("qkv", "ssm_conv1d", ssm.channels, ssm.conv_kernel, "silu"),
        # Queries and keys get length 1: an RMS norm without the mean.
        Norm("qkv", "", "qkv", dim, 2 * ssm.num_groups, factor=dim**-0.5, eps=_L2_EPS / dim),
        DeltaRule(
            "qkv", "beta", "alpha", "o", heads, ssm.num_groups, dim, ssm.head_dim, dim**-0.5, tiled
        ),
        Norm("o", "ssm_norm", "o", ssm.head_dim, heads),
        Gated("silu", ssm.inner_size, gate="z", up="o"),
        Linear("z", ssm.inner_size, (Product("ssm_out", "x", config.hidden_size),), add=True),
    ]


def _inputs(config: ModelConfig, ssm: SSMConfig, has: Has) -> list[Operation]:
    """Project h to queries, keys and values, to z, and to beta and alpha of each head."""
    heads, groups, dim, inner = ssm.num_heads, ssm.num_groups, ssm.state_size, ssm.inner_size
    split: list[Operation] = []
    products = [Product("attn_qkv", "qkv", ssm.channels), Product("attn_gate", "z", inner)]
    if has("ssm_in"):
        # Older files have query, key, values and z of each key head in one weight.
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


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    return [
        *expert_blocks.routed(config, has, "silu", size=expert_blocks.size_of(config)),
        *expert_blocks.shared_expert(config, "silu", size=config.intermediate_size, gated=True),
    ]


def _architecture(name: str, *needs: str, tiled: bool = True) -> Architecture:
    return Architecture(
        (name,), partial(_layer, tiled=tiled), rope_halves=True,
        axes="interleaved" if tiled else "", needs=("ssm", *needs), drafting=_drafting,
    )  # fmt: skip


ARCHITECTURES = (
    _architecture("qwen35"),
    _architecture("qwen35moe", "experts"),
    _architecture("qwen3next", "experts", tiled=False),
)

# -- In transformers' checkpoints --

_KINDS = {"linear_attention": True, "full_attention": False}
_SHARED = "shared_expert_intermediate_size"
_DELTA = "linear_attn"


def _states(values: Values) -> SSMConfig:
    key_dim = values.size("linear_key_head_dim", "ssm_state_size")
    value_dim = values.size("linear_value_head_dim", "head_dim")
    groups = values.size("linear_num_key_heads", "ssm_num_groups")
    heads = values.size("linear_num_value_heads", "ssm_num_heads")
    if heads % groups:
        raise values.error(
            "linear_num_value_heads", f"is not a multiple of linear_num_key_heads {groups}"
        )
    kernel = values.size("linear_conv_kernel_dim", "ssm_conv_kernel")
    return SSMConfig(kernel, heads * value_dim, key_dim, groups, heads)


_ENDS: table.Table = {**table.EMBEDDING, "output_norm": table.at("model.norm", add=1)}
# The query's projection has the rows of a gate after those of each head.
_PROJECTIONS = table.attention(bias="attention_bias", output_bias="attention_bias")
_ATTENTION: table.Table = {
    **{name: _PROJECTIONS[name] for name in ("attn_k", "attn_v", "attn_output", "attn_q")},
    **table.head_norms(add=1),
}
_FEED_FORWARD: table.Table = {
    "post_attention_norm": table.at("post_attention_layernorm", add=1),
    **table.gated(),
    **WITH_SHARED,
}
_DRAFTING: tuple[tuple[str, table.Table], ...] = (
    (
        "mtp.",
        {
            "nextn.eh_proj": "fc",
            "nextn.enorm": table.at("pre_fc_norm_embedding", add=1),
            "nextn.hnorm": table.at("pre_fc_norm_hidden", add=1),
            "nextn.shared_head_norm": table.at("norm", add=1),
        },
    ),
    (
        "mtp.layers.0.",
        {"attn_norm": table.at("input_layernorm", add=1), **_ATTENTION, **_FEED_FORWARD},
    ),
)


def _ssm(config: ModelConfig) -> SSMConfig:
    if config.ssm is None:
        raise TypeError(f"{config.architecture} has no recurrent state in its configuration")
    return config.ssm


def _delta_rule_table(config: ModelConfig) -> table.Table:
    """Return the table of Qwen 3.5, whose value heads are interleaved."""
    ssm = _ssm(config)
    groups, heads, keys = ssm.num_groups, ssm.num_heads, 2 * ssm.keys_size
    turned, values = heads_in_turns(groups, heads), heads_in_turns(groups, heads, first=keys)
    both = (rows(0, keys), values)

    def stored(name: str, view: View) -> table.TableRow:
        return table.TableRow((Stored((f"{_DELTA}.{name}",), view),))

    def columns(array: NDArray[Any]) -> NDArray[Any]:
        parts = array.reshape(len(array), groups, heads // groups, -1)
        return parts.swapaxes(1, 2)

    return {
        "attn_qkv": table.TableRow((Stored((f"{_DELTA}.in_proj_qkv.weight",), parts=both),)),
        "attn_gate": stored("in_proj_z.weight", turned),
        "ssm_beta": stored("in_proj_b.weight", turned),
        "ssm_alpha": stored("in_proj_a.weight", turned),
        "ssm_conv1d": convolution(f"{_DELTA}.conv1d", *both),
        "ssm_a.": decay(_DELTA, turned),
        "ssm_dt.bias": stored("dt_bias", turned),
        "ssm_norm": f"{_DELTA}.norm",
        "ssm_out": stored("out_proj.weight", columns),
    }


def _delta_rule_of_next_table(config: ModelConfig) -> table.Table:
    """Return the table of Qwen3-Next, with one weight for q, k, v and z of each key head."""
    ssm = _ssm(config)
    groups, dim, of_group = ssm.num_groups, ssm.state_size, ssm.inner_size // ssm.num_groups

    def part(first: int, last: int) -> View:
        def view(array: NDArray[Any]) -> NDArray[Any]:
            return array.reshape(groups, 2 * (dim + of_group), -1)[:, first:last]

        return view

    name = (f"{_DELTA}.in_proj_qkvz.weight",)
    ends = (0, dim, 2 * dim, 2 * dim + of_group, 2 * (dim + of_group))
    query, key, value, z = (part(*pair) for pair in itertools.pairwise(ends))
    return {
        "attn_qkv": table.TableRow((Stored(name, parts=(query, key, value)),)),
        "attn_gate": table.TableRow((Stored(name, parts=(z,)),)),
        "ssm_ba": f"{_DELTA}.in_proj_ba",
        "ssm_conv1d": convolution(f"{_DELTA}.conv1d"),
        "ssm_a.": decay(_DELTA),
        "ssm_dt.bias": table.tensor(f"{_DELTA}.dt_bias"),
        "ssm_norm": f"{_DELTA}.norm",
        "ssm_out": f"{_DELTA}.out_proj",
    }


def _table(config: ModelConfig, values: Values) -> table.Table:
    of_next = config.architecture == "qwen3next"
    return {
        "attn_norm": table.at("input_layernorm", add=1),
        **_ATTENTION,
        **(_delta_rule_of_next_table(config) if of_next else _delta_rule_table(config)),
        **_FEED_FORWARD,
    }


def _keys(config: ModelConfig, values: Values) -> Keys:
    recurrent = np.array(layer_kinds(config, values, _KINDS, 4), np.bool_)
    keys: dict[str, object] = {
        **field_values(_states(values)),
        "recurrent_layers": recurrent,
        "full_attention_interval": values.size(
            "full_attention_interval", "full_attention_interval", 4
        ),
    }
    if config.experts is not None:
        shared = values.size(_SHARED, "shared_intermediate_size")
        keys["shared_intermediate_size"] = shared
    return keys


def _next_keys(config: ModelConfig, values: Values) -> Keys:
    check_routing(values, normalizes=True)
    return _keys(config, values)


def _newer_keys(config: ModelConfig, values: Values) -> Keys:
    sections = rope_sections(values, _SECTIONS)
    return {**_keys(config, values), "rope.dimension_sections": sections}


# Defaults of transformers' class; text does not depend on them.
_SECTIONS = (11, 11, 10)
_WITHIN_MLX = (("language_model.", ""),)  # classes that contain the text model in another one
_UNUSED = r"mtp\..*"  # if they are not a whole drafting layer
_EXPERTS = ExpertTerms(("num_experts", "num_local_experts"))
_SIZES: dict[str, object] = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "head_dim": 256,
    "partial_rotary_factor": 0.25,
}  # fmt: skip
_EXPERT_SIZES = {**_SIZES, "intermediate_size": 5632, _SHARED: 512, "norm_topk_prob": True}
FAMILIES = (
    Family(
        classes={"Qwen3NextForCausalLM": "qwen3next"},
        layer=_table, ends=_ENDS, keys=_next_keys,
        defaults=_EXPERT_SIZES, experts=_EXPERTS, partial_rope=True,
        unused=_UNUSED, drafting=_DRAFTING, mlx_turns=True,
    ),
    Family(
        classes={"Qwen3_5ForCausalLM": "qwen35"},
        layer=_table, ends=_ENDS, keys=_newer_keys,
        defaults=_SIZES, partial_rope=True,
        renames=_WITHIN_MLX,
        unused=_UNUSED, drafting=_DRAFTING, mlx_turns=True,
        wrappers={
            "Qwen3_5ForConditionalGeneration": "qwen35",
            "MiniCPMV4_6ForConditionalGeneration": "qwen35",
        },
    ),
    Family(
        classes={"Qwen3_5MoeForCausalLM": "qwen35moe"},
        layer=_table, ends=_ENDS, keys=_newer_keys, renames=_WITHIN_MLX,
        defaults=_EXPERT_SIZES, experts=_EXPERTS, partial_rope=True,
        unused=_UNUSED, drafting=_DRAFTING, mlx_turns=True,
        wrappers={"Qwen3_5MoeForConditionalGeneration": "qwen35moe"},
    ),
)  # fmt: skip
