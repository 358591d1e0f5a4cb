"""Granite 4, Nemotron-H and Falcon-H1: Mamba-2 in the place of attention, or beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.blocks import (
    attention,
    embedding,
    experts,
    gated,
    linear,
    norm,
    router,
    vector,
)
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.families.granite import feed_forward, scales
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.recurrent import (
    States,
    convolution,
    decay,
    group_norm,
    layer_kinds,
)
from trinity.formats.huggingface.stored import Module, Stored, as_it_is, rows
from trinity.formats.huggingface.values import shown

_NEMOTRON_LISTS = ("layers_block_type", "layer_types")
_GRANITE_KINDS = {
    "mamba": True, "attention": False, "linear_attention": True, "full_attention": False,
}  # fmt: skip
_MAMBA, _ATTENTION, _FEED_FORWARD, _EXPERTS = "M*-E"
_NEMOTRON_KINDS = {
    "mamba": _MAMBA, "attention": _ATTENTION, "mlp": _FEED_FORWARD, "moe": _EXPERTS,
    "linear_attention": _MAMBA, "full_attention": _ATTENTION,
}  # fmt: skip
# transformers 5 writes what is not finite as an object.
_NO_LIMITS = (None, [0.0, float("inf")], [0.0, {"__float__": "Infinity"}])


def _check_plain(config: HFConfig, *keys: str) -> None:
    """Raises UnsupportedError for what GGUF's files of these classes have no tensors for."""
    for key in keys:
        if config.values.flag(key):
            raise UnsupportedError(
                f"{config.source}: {key} is true; in GGUF these layers have no such bias"
            )


def _mamba(config: HFConfig, states: States, source: str, *, bias: bool = True) -> Iterator[Module]:
    """All but the projections. ``bias``: of the convolution."""
    yield from convolution(
        f"{source}.conv1d", states.channels, states.conv_kernel, bias=bias
    )  # fmt: skip
    yield vector("ssm_dt.bias", f"{source}.dt_bias", (states.num_heads,))
    shape = (states.num_heads, 1)
    yield decay(source, states.num_heads, lambda array: array.reshape(shape), shape)
    form = Stored((f"{source}.D",), shape[:1], lambda array: array.reshape(shape))
    yield Module("ssm_d", shape, (form,), "precise")


def _projections(config: HFConfig, states: States, source: str) -> Iterator[Module]:
    hidden, inner = config.hidden_size, states.inner_size
    outputs = inner + states.channels + states.num_heads
    yield from linear("ssm_in", f"{source}.in_proj", outputs, hidden)
    yield from linear("ssm_out", f"{source}.out_proj", hidden, inner)


# -- Granite 4 -----------------------------------------------------------------------------------


def _granite_states(config: HFConfig) -> States:
    values = config.values
    _check_plain(config, "mamba_proj_bias")
    expand = values.size("mamba_expand", "ssm_expand", 2)
    return _checked(
        config, "mamba_n_heads",
        States(
            values.size("mamba_d_conv", "ssm_conv_kernel", 4),
            expand * config.hidden_size,
            values.size("mamba_d_state", "ssm_state_size", 256),
            values.size("mamba_n_groups", "ssm_num_groups", 1),
            values.size("mamba_n_heads", "ssm_num_heads", 128),
        ),
    )  # fmt: skip


def _checked(config: HFConfig, key: str, states: States) -> States:
    """Raises ConfigError where heads do not share values or groups.

    Raises UnsupportedError for steps that are cut at a limit, which GGUF has no key for.
    """
    limit = config.values.values.get("time_step_limit")
    if limit not in _NO_LIMITS:
        raise UnsupportedError(
            f"{config.source}: time_step_limit is {shown(limit)}; trinity reads this class with "
            "steps of any size, [0, Infinity]"
        )
    if states.inner_size % states.num_heads or states.num_heads % states.num_groups:
        raise config.values.error(
            key, f"must divide the inner size {states.inner_size} and be a multiple of the "
            f"{states.num_groups} groups"
        )  # fmt: skip
    return states


def _granite_layer(config: HFConfig, index: int) -> Iterator[Module]:
    bias, hidden = config.values.flag("attention_bias"), config.hidden_size
    yield from norm("attn_norm", "input_layernorm", hidden)
    if layer_kinds(config, _GRANITE_KINDS)[index]:
        states, source = _granite_states(config), "mamba"
        yield from _projections(config, states, source)
        yield from _mamba(config, states, source, bias=config.values.flag("mamba_conv_bias", True))
        yield from group_norm(f"{source}.norm", states)
    else:
        yield from attention(config, bias=bias, output_bias=bias, permuted=True)
    yield from norm("ffn_norm", "post_attention_layernorm", hidden)
    if config.experts is not None:
        yield from feed_forward(config)
        return
    width, both = _granite_width(config), ("shared_mlp.input_linear.weight",)
    for name, view in (("gate", rows(0, width)), ("up", rows(width))):
        apart = Stored((f"mlp.{name}_proj.weight",), (width, hidden))  # mlx-lm's
        forms = (Stored(both, (2 * width, hidden), view), apart)
        yield Module(f"ffn_{name}.weight", (width, hidden), forms, "linear")
    names = ("shared_mlp.output_linear.weight", "mlp.down_proj.weight")
    down = tuple(Stored((name,), (hidden, width)) for name in names)
    yield Module("ffn_down.weight", (hidden, width), down, "linear")


def _granite_width(config: HFConfig) -> int:
    return config.values.size("shared_intermediate_size", "shared_intermediate_size")


def _granite_keys(config: HFConfig) -> Keys:
    recurrent = layer_kinds(config, _GRANITE_KINDS)
    kinds = ("rope", "nope", None)
    position = config.values.values.get("position_embedding_type")
    if position not in kinds:
        raise UnsupportedError(
            f"{config.source}: position_embedding_type is {shown(position)}; trinity reads rope "
            "and nope"
        )
    shared = config.values.size(
        "shared_intermediate_size", "shared_intermediate_size", 0, smallest=0
    )
    return {
        **scales(config),
        **_granite_states(config).keys(),
        "attention.head_count_kv": _kv_heads(config, recurrent),
        "rope.scaling.finetuned": position == "rope",
        "feed_forward_length": config.intermediate_size if config.experts else shared,
        "expert_count": config.experts.count if config.experts else 0,
        "expert_used_count": config.experts.used if config.experts else 0,
        "expert_feed_forward_length": None,
        "expert_shared_feed_forward_length": shared or None,
    }


def _kv_heads(config: HFConfig, without: tuple[bool, ...]) -> Any:
    """For each layer the heads of keys, 0 in those without attention."""
    return np.array([0 if one else config.num_kv_heads for one in without], np.int32)


# -- Nemotron-H ----------------------------------------------------------------------------------


def _pattern(config: HFConfig) -> str:
    """A letter for each layer."""
    values = config.values
    listed = values.values.get(values.first_of(_NEMOTRON_LISTS))
    if isinstance(listed, list):
        unknown = [one for one in listed if not isinstance(one, str) or one not in _NEMOTRON_KINDS]
        if unknown:
            raise UnsupportedError(
                f"{config.source}: layers_block_type has {shown(unknown[0])}; of this class "
                f"trinity reads {', '.join(_NEMOTRON_KINDS)}"
            )
        pattern = "".join(_NEMOTRON_KINDS[one] for one in listed)
    else:
        pattern = values.text("hybrid_override_pattern", "")
    if len(pattern) != config.num_layers or set(pattern) - set("M*-E"):
        raise ConfigError(
            f"{config.source}: hybrid_override_pattern is {shown(pattern)}; expected a letter of "
            f"M, *, - and E for each of the {config.num_layers} layers"
        )
    if config.experts is None and _EXPERTS in pattern:
        raise ConfigError(
            f"{config.source}: n_routed_experts is missing or 0, but hybrid_override_pattern is "
            f"{shown(pattern)}; E stands for a layer with experts"
        )
    return pattern


def _nemotron_states(config: HFConfig) -> States:
    values = config.values
    _check_plain(config, "mamba_proj_bias", "use_bias", "attention_bias", "mlp_bias")
    heads = values.size("mamba_num_heads", "ssm_num_heads")
    return _checked(
        config, "mamba_num_heads",
        States(
            values.size("conv_kernel", "ssm_conv_kernel", 4),
            heads * values.size("mamba_head_dim", "head_dim"),
            values.size("ssm_state_size", "ssm_state_size"),
            values.size(values.first_of(("n_groups", "mamba_n_groups")), "ssm_num_groups"),
            heads,
        ),
    )  # fmt: skip


def _nemotron_ends(config: HFConfig) -> Iterator[Module]:
    own = embedding(config)
    forms = (Stored(("model.embeddings.weight",), own.shape), *own.forms)
    yield Module(own.name, own.shape, forms, own.kind)
    yield from norm("output_norm", ("model.norm_f", "model.norm"), config.hidden_size)


def _nemotron_layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, source, kind = config.hidden_size, "mixer", _pattern(config)[index]
    yield from norm("attn_norm", "norm", hidden)
    if kind == _MAMBA:
        states = _nemotron_states(config)
        yield from _projections(config, states, source)
        yield from _mamba(config, states, source, bias=config.values.flag("use_conv_bias", True))
        yield from group_norm(f"{source}.norm", states)
    elif kind == _ATTENTION:
        # GGUF has Q's and K's rows permuted, though nothing rotates.
        query, kv, heads, kv_heads = (
            config.query_size, config.kv_size, config.num_heads, config.num_kv_heads
        )  # fmt: skip
        yield from linear("attn_q", f"{source}.q_proj", query, hidden, permuted=heads)
        yield from linear("attn_k", f"{source}.k_proj", kv, hidden, permuted=kv_heads)
        yield from linear("attn_v", f"{source}.v_proj", kv, hidden)
        yield from linear("attn_output", f"{source}.o_proj", hidden, query)
    elif kind == _FEED_FORWARD:
        yield from linear("ffn_up", f"{source}.up_proj", config.intermediate_size, hidden)
        yield from linear("ffn_down", f"{source}.down_proj", hidden, config.intermediate_size)
    else:
        yield from _nemotron_experts(config, source)


def _nemotron_experts(config: HFConfig, source: str) -> Iterator[Module]:
    hidden = config.hidden_size
    yield router(config, f"{source}.gate")
    count = config.experts.count if config.experts else 0
    yield vector("exp_probs_b.bias", f"{source}.gate.e_score_correction_bias", (count,))
    for module in experts(config, f"{source}.experts"):
        if module.name != "ffn_gate_exps.weight":
            yield module
    shared = _nemotron_shared(config)
    yield from linear("ffn_up_shexp", f"{source}.shared_experts.up_proj", shared, hidden)
    yield from linear("ffn_down_shexp", f"{source}.shared_experts.down_proj", hidden, shared)


def _nemotron_shared(config: HFConfig) -> int:
    """The width of the one that every token takes; transformers asks for no number of them."""
    key = "moe_shared_expert_intermediate_size"
    return config.values.size(key, "shared_intermediate_size")


def _nemotron_keys(config: HFConfig) -> Keys:
    pattern, values = _pattern(config), config.values
    if values.has("moe_latent_size"):
        raise UnsupportedError(
            f"{config.source}: moe_latent_size is {shown(values.values['moe_latent_size'])}; "
            "trinity reads this class with experts on the whole stream"
        )
    widths = {_FEED_FORWARD: config.intermediate_size}
    keys: dict[str, object] = {}
    if config.experts is not None:
        widths[_EXPERTS] = config.experts.width
        keys = {
            "expert_shared_feed_forward_length": _nemotron_shared(config),
            "expert_shared_count": values.size(
                "n_shared_experts", "num_shared_experts", 0, smallest=0
            ) or None,
            "expert_weights_norm": values.flag("norm_topk_prob", True),
            "expert_weights_scale": values.real("routed_scaling_factor", "expert_scale", 1.0),
            "expert_group_count": values.size("n_group", "num_expert_groups", 1),
            "expert_group_used_count": values.size("topk_group", "expert_groups_used", 1),
        }  # fmt: skip
    return {
        **keys,
        **_nemotron_states(config).keys(),
        "attention.head_count_kv": _kv_heads(config, tuple(one != _ATTENTION for one in pattern)),
        "feed_forward_length": np.array([widths.get(one, 0) for one in pattern], np.int32),
        "rope.scaling.finetuned": False,
        "rope.freq_base": None,
    }


# -- Falcon-H1 -----------------------------------------------------------------------------------


def _falcon_states(config: HFConfig) -> States:
    values = config.values
    _check_plain(config, "mamba_proj_bias", "projectors_bias", "attention_bias", "mlp_bias")
    inner = values.size("mamba_expand", "ssm_expand", 2) * config.hidden_size
    if values.has("mamba_d_ssm"):
        inner = values.size("mamba_d_ssm", "ssm_inner_size")
    return _checked(
        config, "mamba_n_heads",
        States(
            values.size("mamba_d_conv", "ssm_conv_kernel", 4),
            inner,
            values.size("mamba_d_state", "ssm_state_size", 256),
            values.size("mamba_n_groups", "ssm_num_groups", 1),
            values.size("mamba_n_heads", "ssm_num_heads", 128),
        ),
    )  # fmt: skip


def _factor(config: HFConfig, key: str) -> float:
    return config.values.real(key, "multiplier", 1.0)


def _times(module: Module, *factors: tuple[float, ...], ends: tuple[int, ...] = ()) -> Module:
    """The module's rows, up to each of ``ends``, times the factors; in GGUF they are so."""
    if all(factor == 1.0 for of_part in factors for factor in of_part):
        return module
    (form,) = module.forms
    views = tuple(rows(first, last) for first, last in zip((0, *ends), (*ends, None), strict=True))
    stored = Stored(form.names, form.shape, parts=views if ends else (as_it_is,))
    return Module(
        module.name, module.shape, (stored,), module.kind, module.permuted_heads, factors=factors
    )


def _falcon_ends(config: HFConfig) -> Iterator[Module]:
    yield _times(embedding(config), (_factor(config, "embedding_multiplier"),))
    yield from norm("output_norm", "model.final_layernorm", config.hidden_size)


def _falcon_layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, source = config.hidden_size, "mamba"
    into = _factor(config, "attention_in_multiplier")
    out = _factor(config, "attention_out_multiplier")
    factors = {
        "attn_q": (into,), "attn_k": (_factor(config, "key_multiplier"), into),
        "attn_v": (into,), "attn_output": (out,),
    }  # fmt: skip
    yield from norm("attn_norm", "input_layernorm", hidden)
    for module in attention(config):
        yield _times(module, factors[module.name.removesuffix(".weight")])
    states = _falcon_states(config)
    projection, output = _projections(config, states, source)
    inner, keys = states.inner_size, states.num_groups * states.state_size
    ends = (inner, 2 * inner, 2 * inner + keys, 2 * inner + 2 * keys)
    parts = config.values.reals("ssm_multipliers", "multiplier", 5)
    whole = _factor(config, "ssm_in_multiplier")
    yield _times(projection, *((whole, part) for part in parts), ends=ends)
    yield _times(output, (_factor(config, "ssm_out_multiplier"),))
    yield from _mamba(config, states, source, bias=config.values.flag("mamba_conv_bias", True))
    if config.values.flag("mamba_rms_norm"):
        yield from group_norm(f"{source}.norm", states)
    yield vector("ffn_norm", "pre_ff_layernorm.weight", (hidden,))
    gate, down = config.values.reals("mlp_multipliers", "multiplier", 2)
    by_name = {"ffn_gate": gate, "ffn_up": 1.0, "ffn_down": down}
    for module in gated(hidden, config.intermediate_size, source="feed_forward"):
        yield _times(module, (by_name[module.name.removesuffix(".weight")],))


def _falcon_keys(config: HFConfig) -> Keys:
    if config.values.flag("mamba_rms_norm") and config.values.flag("mamba_norm_before_gate", True):
        raise UnsupportedError(
            f"{config.source}: mamba_norm_before_gate is true or missing; GGUF cannot say so: "
            "trinity reads this class with the gate before the norm, where it is false"
        )
    return {**_falcon_states(config).keys(), "rope.dimension_count": None}


FAMILIES = (
    Family(
        class_names=("GraniteMoeHybridForCausalLM",),
        architectures={"silu": "granitehybrid"},
        layer=_granite_layer,
        keys=_granite_keys,
        mlx_turns=True,
        terms=Terms(
            experts=ExpertTerms(("num_local_experts",), width="intermediate_size", optional=True),
        ),
    ),
    Family(
        class_names=("NemotronHForCausalLM",),
        architectures={"relu2": "nemotron_h"},
        layer=_nemotron_layer, ends=_nemotron_ends, keys=_nemotron_keys,
        terms=Terms(
            activation="mlp_hidden_act", epsilon="layer_norm_epsilon",
            defaults={"layer_norm_epsilon": 1e-5},
            experts=ExpertTerms(("n_routed_experts",), optional=True, kinds=("moe", _EXPERTS)),
            kinds=(*_NEMOTRON_LISTS, "hybrid_override_pattern"),
        ),
        unused=lambda config: r"(model\.)?mtp\..*", renames=(("backbone.", "model."),),
        with_experts="nemotron_h_moe", ties=False,
    ),
    Family(
        class_names=("FalconH1ForCausalLM",),
        architectures={"silu": "falcon-h1"},
        layer=_falcon_layer, ends=_falcon_ends, keys=_falcon_keys,
        terms=Terms(
            defaults={
                "mlp_multipliers": [1.0, 1.0],
                "ssm_multipliers": [1.0] * 5,
                "mamba_d_ssm": 1024,
                "rms_norm_eps": 1e-5,
            },
        ),
        head_factor=lambda config: _factor(config, "lm_head_multiplier"),
    ),
)  # fmt: skip
