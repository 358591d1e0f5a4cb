"""Qwen3-Next and Qwen 3.5: three layers of the gated delta rule, then one of attention.

Heads of values that share a head of keys lie together; GGUF's qwen35 has them in turns. Norms lack
the 1 that they add to their weights, but for the one of the delta rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.formats.huggingface.blocks import (
    attention,
    embedding,
    experts,
    gated,
    head_norms,
    linear,
    norm,
    router,
    vector,
)
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.families.qwen_moe import check_routing
from trinity.formats.huggingface.family import Family, Group, Keys
from trinity.formats.huggingface.recurrent import States, convolution, decay, layer_kinds
from trinity.formats.huggingface.rope import rope_parameters
from trinity.formats.huggingface.stored import Module, Stored, View, heads_in_turns, rows

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


def _ends(config: HFConfig) -> Iterator[Module]:
    yield embedding(config)
    yield from norm("output_norm", "model.norm", config.hidden_size, add=1)


def _attention(config: HFConfig) -> Iterator[Module]:
    """The query's projection has a gate's rows behind each head's."""
    bias, hidden = config.values.flag("attention_bias"), config.hidden_size
    for module in attention(config, bias=bias, output_bias=bias):
        if not module.name.startswith("attn_q."):
            yield module
    yield from linear("attn_q", "self_attn.q_proj", 2 * config.query_size, hidden, bias=bias)
    yield from head_norms(config, add=1)


def _delta_rule(config: HFConfig, states: States) -> Iterator[Module]:
    """Of Qwen 3.5: heads of values in turns."""
    groups, heads, hidden = states.num_groups, states.num_heads, config.hidden_size
    inner, keys = states.inner_size, 2 * states.num_groups * states.state_size
    turned, values = heads_in_turns(groups, heads), heads_in_turns(groups, heads, first=keys)
    both = (rows(0, keys), values)
    shape = (states.channels, hidden)
    form = Stored((f"{_DELTA}.in_proj_qkv.weight",), shape, parts=both)
    yield Module("attn_qkv.weight", shape, (form,), "linear")
    for name, source, count in (
        ("attn_gate", "in_proj_z", inner), ("ssm_beta", "in_proj_b", heads),
        ("ssm_alpha", "in_proj_a", heads),
    ):  # fmt: skip
        shape = (count, hidden)
        form = Stored((f"{_DELTA}.{source}.weight",), shape, turned)
        yield Module(f"{name}.weight", shape, (form,), "linear")
    yield from convolution(f"{_DELTA}.conv1d", states.channels, states.conv_kernel, *both)
    yield decay(_DELTA, heads, turned)
    yield Module(
        "ssm_dt.bias", (heads,), (Stored((f"{_DELTA}.dt_bias",), (heads,), turned),), "precise"
    )
    yield from norm("ssm_norm", f"{_DELTA}.norm", inner // heads)
    shape = (hidden, inner)

    def columns(array: NDArray[Any]) -> NDArray[Any]:
        parts = array.reshape(hidden, groups, heads // groups, inner // heads)
        return parts.swapaxes(1, 2)

    form = Stored((f"{_DELTA}.out_proj.weight",), shape, columns)
    yield Module("ssm_out.weight", shape, (form,), "linear")


def _delta_rule_of_next(config: HFConfig, states: States) -> Iterator[Module]:
    """Of Qwen3-Next: one weight has query, key, values and z of each head of keys."""
    groups, heads, hidden = states.num_groups, states.num_heads, config.hidden_size
    inner, dim = states.inner_size, states.state_size
    of_group = inner // groups
    stored = (groups * 2 * (dim + of_group), hidden)

    def part(first: int, last: int) -> View:
        def view(array: NDArray[Any]) -> NDArray[Any]:
            return array.reshape(groups, 2 * (dim + of_group), -1)[:, first:last]

        return view

    name = (f"{_DELTA}.in_proj_qkvz.weight",)
    ends = (0, dim, 2 * dim, 2 * dim + of_group, 2 * (dim + of_group))
    query, key, value, z = (part(*pair) for pair in itertools.pairwise(ends))
    form = Stored(name, stored, parts=(query, key, value))
    yield Module("attn_qkv.weight", (states.channels, hidden), (form,), "linear")
    form = Stored(name, stored, parts=(z,))
    yield Module("attn_gate.weight", (inner, hidden), (form,), "linear")
    yield from linear("ssm_ba", f"{_DELTA}.in_proj_ba", 2 * heads, hidden)
    yield from convolution(f"{_DELTA}.conv1d", states.channels, states.conv_kernel)
    yield decay(_DELTA, heads)
    yield vector("ssm_dt.bias", f"{_DELTA}.dt_bias", (heads,))
    yield from norm("ssm_norm", f"{_DELTA}.norm", inner // heads)
    yield from linear("ssm_out", f"{_DELTA}.out_proj", hidden, inner)


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    yield from norm("attn_norm", "input_layernorm", config.hidden_size, add=1)
    if not layer_kinds(config, _KINDS, 4)[index]:
        yield from _attention(config)
    elif config.class_name.startswith("Qwen3Next"):
        yield from _delta_rule_of_next(config, _states(config))
    else:
        yield from _delta_rule(config, _states(config))
    yield from _feed_forward(config)


def _feed_forward(config: HFConfig) -> Iterator[Module]:
    hidden = config.hidden_size
    yield from norm("post_attention_norm", "post_attention_layernorm", hidden, add=1)
    if config.experts is None:
        yield from gated(hidden, config.intermediate_size)
        return
    shared = config.values.size(_SHARED, "shared_intermediate_size")
    yield router(config, "mlp.gate")
    yield from experts(config, "mlp.experts")
    yield vector("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", (1, hidden))
    yield from gated(hidden, shared, source="mlp.shared_expert", suffix="_shexp")


def _drafting(config: HFConfig) -> Iterator[Group]:
    hidden = config.hidden_size
    yield (
        "mtp.",
        [
            *linear("nextn.eh_proj", "fc", hidden, 2 * hidden),
            *norm("nextn.enorm", "pre_fc_norm_embedding", hidden, add=1),
            *norm("nextn.hnorm", "pre_fc_norm_hidden", hidden, add=1),
            *norm("nextn.shared_head_norm", "norm", hidden, add=1),
        ],
    )
    layer = norm("attn_norm", "input_layernorm", hidden, add=1)
    yield "mtp.layers.0.", [*layer, *_attention(config), *_feed_forward(config)]


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
        layer=_layer, ends=_ends, keys=_next_keys,
        terms=Terms(defaults=_EXPERT_SIZES, experts=_EXPERTS, partial_rope=True),
        unused=lambda config: _UNUSED, drafting=_drafting, mlx_turns=True,
    ),
    Family(
        class_names=("Qwen3_5ForCausalLM",),
        architectures={"silu": "qwen35"},
        layer=_layer, ends=_ends, keys=_newer_keys,
        terms=Terms(defaults=_SIZES, partial_rope=True),
        renames=_WITHIN_MLX,
        unused=lambda config: _UNUSED, drafting=_drafting, mlx_turns=True,
        wrappers=("Qwen3_5ForConditionalGeneration",),
    ),
    Family(
        class_names=("Qwen3_5MoeForCausalLM",),
        architectures={"silu": "qwen35moe"},
        layer=_layer, ends=_ends, keys=_newer_keys, renames=_WITHIN_MLX,
        terms=Terms(defaults=_EXPERT_SIZES, experts=_EXPERTS, partial_rope=True),
        unused=lambda config: _UNUSED, drafting=_drafting, mlx_turns=True,
        wrappers=("Qwen3_5MoeForConditionalGeneration",),
    ),
)  # fmt: skip
