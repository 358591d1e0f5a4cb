"""Qwen3-Next and Qwen 3.5: three layers of the gated delta rule, then one of attention.

Heads of values that share a head of keys lie together; GGUF's qwen35 has them in turns. Norms lack
the 1 that they add to their weights, but for the one of the delta rule.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig, SSMConfig
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.families.qwen_moe import WITH_SHARED, check_routing
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.recurrent import States, convolution, decay, layer_kinds
from trinity.formats.huggingface.rope import rope_parameters
from trinity.formats.huggingface.stored import Stored, View, heads_in_turns, rows
from trinity.formats.huggingface.table import (
    EMBEDDING,
    Table,
    TableRow,
    at,
    attention,
    gated,
    head_norms,
    tensor,
)
from trinity.formats.huggingface.values import Values

_KINDS = {"linear_attention": True, "full_attention": False}
_SHARED = "shared_expert_intermediate_size"
_DELTA = "linear_attn"


def _states(config: HFConfig) -> States:
    values = config.values
    key_dim = values.size("linear_key_head_dim", "ssm_state_size")
    value_dim = values.size("linear_value_head_dim", "head_dim")
    groups = values.size("linear_num_key_heads", "ssm_num_groups")
    heads = values.size("linear_num_value_heads", "ssm_num_heads")
    if heads % groups:
        raise values.error(
            "linear_num_value_heads", f"is not a multiple of linear_num_key_heads {groups}"
        )
    kernel = values.size("linear_conv_kernel_dim", "ssm_conv_kernel")
    return States(kernel, heads * value_dim, key_dim, groups, heads)


_ENDS: Table = {**EMBEDDING, "output_norm": at("model.norm", add=1)}
# The query's projection has the rows of a gate after each head's.
_PROJECTIONS = attention(bias="attention_bias", output_bias="attention_bias")
_ATTENTION: Table = {
    **{name: _PROJECTIONS[name] for name in ("attn_k", "attn_v", "attn_output", "attn_q")},
    **head_norms(add=1),
}
_FEED_FORWARD: Table = {
    "post_attention_norm": at("post_attention_layernorm", add=1),
    **gated(),
    **WITH_SHARED,
}
_DRAFTING: tuple[tuple[str, Table], ...] = (
    (
        "mtp.",
        {
            "nextn.eh_proj": "fc",
            "nextn.enorm": at("pre_fc_norm_embedding", add=1),
            "nextn.hnorm": at("pre_fc_norm_hidden", add=1),
            "nextn.shared_head_norm": at("norm", add=1),
        },
    ),
    ("mtp.layers.0.", {"attn_norm": at("input_layernorm", add=1), **_ATTENTION, **_FEED_FORWARD}),
)


def _ssm(config: ModelConfig) -> SSMConfig:
    if config.ssm is None:
        raise TypeError(f"{config.architecture} is to be read without a recurrent state")
    return config.ssm


def _delta_rule(config: ModelConfig) -> Table:
    """Of Qwen 3.5: heads of values in turns."""
    ssm = _ssm(config)
    groups, heads, keys = ssm.num_groups, ssm.num_heads, 2 * ssm.keys_size
    turned, values = heads_in_turns(groups, heads), heads_in_turns(groups, heads, first=keys)
    both = (rows(0, keys), values)

    def stored(name: str, view: View) -> TableRow:
        return TableRow((Stored((f"{_DELTA}.{name}",), view),))

    def columns(array: NDArray[Any]) -> NDArray[Any]:
        parts = array.reshape(len(array), groups, heads // groups, -1)
        return parts.swapaxes(1, 2)

    return {
        "attn_qkv": TableRow((Stored((f"{_DELTA}.in_proj_qkv.weight",), parts=both),)),
        "attn_gate": stored("in_proj_z.weight", turned),
        "ssm_beta": stored("in_proj_b.weight", turned),
        "ssm_alpha": stored("in_proj_a.weight", turned),
        "ssm_conv1d": convolution(f"{_DELTA}.conv1d", *both),
        "ssm_a.": decay(_DELTA, turned),
        "ssm_dt.bias": stored("dt_bias", turned),
        "ssm_norm": f"{_DELTA}.norm",
        "ssm_out": stored("out_proj.weight", columns),
    }


def _delta_rule_of_next(config: ModelConfig) -> Table:
    """Of Qwen3-Next: one weight has query, key, values and z of each head of keys."""
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
        "attn_qkv": TableRow((Stored(name, parts=(query, key, value)),)),
        "attn_gate": TableRow((Stored(name, parts=(z,)),)),
        "ssm_ba": f"{_DELTA}.in_proj_ba",
        "ssm_conv1d": convolution(f"{_DELTA}.conv1d"),
        "ssm_a.": decay(_DELTA),
        "ssm_dt.bias": tensor(f"{_DELTA}.dt_bias"),
        "ssm_norm": f"{_DELTA}.norm",
        "ssm_out": f"{_DELTA}.out_proj",
    }


def _layer(config: ModelConfig, values: Values) -> Table:
    of_next = config.architecture == "qwen3next"
    return {
        "attn_norm": at("input_layernorm", add=1),
        **_ATTENTION,
        **(_delta_rule_of_next(config) if of_next else _delta_rule(config)),
        **_FEED_FORWARD,
    }


def _keys(config: HFConfig) -> Keys:
    recurrent = np.array(layer_kinds(config, _KINDS, 4), np.bool_)
    keys: dict[str, object] = {
        **_states(config).keys(),
        "attention.recurrent_layers": recurrent,
        "full_attention_interval": config.values.size(
            "full_attention_interval", "full_attention_interval", 4
        ),
    }
    if config.experts is not None:
        shared = config.values.size(_SHARED, "shared_intermediate_size")
        keys["expert_shared_feed_forward_length"] = shared
    return keys


def _next_keys(config: HFConfig) -> Keys:
    check_routing(config, normalizes=True)
    return _keys(config)


def _newer_keys(config: HFConfig) -> Keys:
    """With the shares of a rotation's dimensions that images turn by time, height and width."""
    rope = rope_parameters(config.values)
    sections = rope.values.get("mrope_section")
    if not isinstance(sections, list) or not all(isinstance(one, int) for one in sections):
        sections = _SECTIONS
    padded = [*sections, 0, 0, 0, 0][:4]
    return {**_keys(config), "rope.dimension_sections": np.array(padded, np.int32)}


# Of transformers' class, where the configuration has none; text does not depend on them.
_SECTIONS = (11, 11, 10)
_WITHIN_MLX = (("language_model.", ""),)  # whose class has the text's model within another
_UNUSED = r"mtp\..*"  # where it is not a whole layer that proposes tokens
_EXPERTS = ExpertTerms(("num_experts", "num_local_experts"))
_SIZES: dict[str, object] = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "head_dim": 256,
    "partial_rotary_factor": 0.25,
}  # fmt: skip
_EXPERT_SIZES = {**_SIZES, "intermediate_size": 5632, _SHARED: 512, "norm_topk_prob": True}
FAMILIES = (
    Family(
        class_names=("Qwen3NextForCausalLM",),
        architectures={"silu": "qwen3next"},
        layer=_layer, ends=_ENDS, keys=_next_keys,
        terms=Terms(defaults=_EXPERT_SIZES, experts=_EXPERTS, partial_rope=True),
        unused=lambda config: _UNUSED, drafting=_DRAFTING, mlx_turns=True,
    ),
    Family(
        class_names=("Qwen3_5ForCausalLM",),
        architectures={"silu": "qwen35"},
        layer=_layer, ends=_ENDS, keys=_newer_keys,
        terms=Terms(defaults=_SIZES, partial_rope=True),
        renames=_WITHIN_MLX,
        unused=lambda config: _UNUSED, drafting=_DRAFTING, mlx_turns=True,
        wrappers=("Qwen3_5ForConditionalGeneration",),
    ),
    Family(
        class_names=("Qwen3_5MoeForCausalLM",),
        architectures={"silu": "qwen35moe"},
        layer=_layer, ends=_ENDS, keys=_newer_keys, renames=_WITHIN_MLX,
        terms=Terms(defaults=_EXPERT_SIZES, experts=_EXPERTS, partial_rope=True),
        unused=lambda config: _UNUSED, drafting=_DRAFTING, mlx_turns=True,
        wrappers=("Qwen3_5MoeForConditionalGeneration",),
    ),
)  # fmt: skip
