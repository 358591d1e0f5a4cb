"""Granite 4, Nemotron-H and Falcon-H1: Mamba-2 in the place of attention, or beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.families.granite import ATTENTION, EXPERTS, scales
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.recurrent import States, convolution, decay, layer_kinds
from trinity.formats.huggingface.stored import Stored, as_it_is, rows
from trinity.formats.huggingface.table import (
    Table,
    TableRow,
    at,
    attention,
    both_rows,
    experts,
    tensor,
)
from trinity.formats.huggingface.values import Values, shown

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


def _mamba(
    config: ModelConfig, source: str, bias: str, norm: str = ""
) -> dict[str, str | TableRow]:
    """A layer. ``bias``, ``norm``: keys that say whether there is the convolution's, and a norm."""
    groups = config.ssm.num_groups if config.ssm else 1
    norms = Stored((f"{source}.norm.weight",), lambda array: array.reshape(groups, -1))
    return {
        "ssm_in": f"{source}.in_proj",
        "ssm_out": f"{source}.out_proj",
        "ssm_conv1d": convolution(f"{source}.conv1d", bias=bias),
        "ssm_dt.bias": tensor(f"{source}.dt_bias"),
        "ssm_a.": decay(source, column=True),
        "ssm_d.": TableRow((Stored((f"{source}.D",)),), column=True),
        "ssm_norm": TableRow((norms,), when=norm),
    }


# -- Granite 4 -----------------------------------------------------------------------------------


def _granite_states(config: HFConfig) -> States:
    values = config.values
    _check_plain(config, "mamba_proj_bias")
    expand = values.size("mamba_expand", "ssm_expand", 2)
    return _checked(
        config,
        "mamba_n_heads",
        States(
            values.size("mamba_d_conv", "ssm_conv_kernel", 4),
            expand * config.hidden_size,
            values.size("mamba_d_state", "ssm_state_size", 256),
            values.size("mamba_n_groups", "ssm_num_groups", 1),
            values.size("mamba_n_heads", "ssm_num_heads", 128),
        ),
    )


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
            key,
            f"must divide the inner size {states.inner_size} and be a multiple of the "
            f"{states.num_groups} groups",
        )
    return states


_GATE, _UP = both_rows("shared_mlp.input_linear.weight", "mlp.{}_proj.weight")  # mlx-lm's apart


def _granite_layer(config: ModelConfig, values: Values) -> Table:
    dense = {
        "ffn_gate": _GATE,
        "ffn_up": _UP,
        "ffn_down": at("shared_mlp.output_linear", "mlp.down_proj"),
    }
    return {
        "attn_norm": "input_layernorm",
        **_mamba(config, "mamba", "mamba_conv_bias"),
        **ATTENTION,
        "ffn_norm": "post_attention_layernorm",
        **(EXPERTS if config.experts else dense),
    }


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
        config,
        "mamba_num_heads",
        States(
            values.size("conv_kernel", "ssm_conv_kernel", 4),
            heads * values.size("mamba_head_dim", "head_dim"),
            values.size("ssm_state_size", "ssm_state_size"),
            values.size(values.first_of(("n_groups", "mamba_n_groups")), "ssm_num_groups"),
            heads,
        ),
    )


_NEMOTRON_ENDS: Table = {
    "token_embd": at("model.embeddings", "model.embed_tokens"),
    "output_norm": at("model.norm_f", "model.norm"),
}


def _nemotron_layer(config: ModelConfig, values: Values) -> Table:
    source = "mixer"
    return {
        "attn_norm": "norm",
        **_mamba(config, source, "use_conv_bias"),
        # GGUF has Q's and K's rows permuted, though nothing rotates.
        **attention(module=source, permuted=True),
        # The layers of experts are those that have it.
        "ffn_gate_inp": TableRow((Stored((f"{source}.gate.weight",)),), optional=True),
        "exp_probs_b.bias": tensor(f"{source}.gate.e_score_correction_bias"),
        **experts(f"{source}.experts", gate=""),
        "ffn_up": f"{source}.up_proj",
        "ffn_down": f"{source}.down_proj",
        "ffn_up_shexp": f"{source}.shared_experts.up_proj",
        "ffn_down_shexp": f"{source}.shared_experts.down_proj",
    }


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
            )
            or None,
            "expert_weights_norm": values.flag("norm_topk_prob", True),
            "expert_weights_scale": values.real("routed_scaling_factor", "expert_scale", 1.0),
            "expert_group_count": values.size("n_group", "num_expert_groups", 1),
            "expert_group_used_count": values.size("topk_group", "expert_groups_used", 1),
        }
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
        config,
        "mamba_n_heads",
        States(
            values.size("mamba_d_conv", "ssm_conv_kernel", 4),
            inner,
            values.size("mamba_d_state", "ssm_state_size", 256),
            values.size("mamba_n_groups", "ssm_num_groups", 1),
            values.size("mamba_n_heads", "ssm_num_heads", 128),
        ),
    )


def _factor(values: Values, key: str) -> float:
    return values.real(key, "multiplier", 1.0)


def _times(module: str, *factors: tuple[float, ...], ends: tuple[int, ...] = ()) -> TableRow:
    """The module's rows, up to each of ``ends``, times the factors; in GGUF they are so."""
    name = (f"{module}.weight",)
    if all(factor == 1.0 for of_part in factors for factor in of_part):
        return TableRow((Stored(name),))
    views = tuple(rows(first, last) for first, last in zip((0, *ends), (*ends, None), strict=True))
    return TableRow((Stored(name, parts=views if ends else (as_it_is,)),), factors=factors)


def _falcon_ends(config: ModelConfig, values: Values) -> Table:
    return {
        "token_embd": _times("model.embed_tokens", (_factor(values, "embedding_multiplier"),)),
        "output_norm": "model.final_layernorm",
    }


def _falcon_layer(config: ModelConfig, values: Values) -> Table:
    into = _factor(values, "attention_in_multiplier")
    out, key = _factor(values, "attention_out_multiplier"), _factor(values, "key_multiplier")
    ends: tuple[int, ...] = ()
    if config.ssm is not None:
        inner, keys = config.ssm.inner_size, config.ssm.keys_size
        ends = (inner, 2 * inner, 2 * inner + keys, 2 * inner + 2 * keys)
    parts = values.reals("ssm_multipliers", "multiplier", 5)
    whole = _factor(values, "ssm_in_multiplier")
    gate, down = values.reals("mlp_multipliers", "multiplier", 2)
    return {
        "attn_norm": "input_layernorm",
        "attn_q": _times("self_attn.q_proj", (into,)),
        "attn_k": _times("self_attn.k_proj", (key, into)),
        "attn_v": _times("self_attn.v_proj", (into,)),
        "attn_output": _times("self_attn.o_proj", (out,)),
        **_mamba(config, "mamba", "mamba_conv_bias", "mamba_rms_norm"),
        "ssm_in": _times("mamba.in_proj", *((whole, part) for part in parts), ends=ends),
        "ssm_out": _times("mamba.out_proj", (_factor(values, "ssm_out_multiplier"),)),
        "ffn_norm.": "pre_ff_layernorm",
        "ffn_gate": _times("feed_forward.gate_proj", (gate,)),
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": _times("feed_forward.down_proj", (down,)),
    }


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
            defaults={"mamba_conv_bias": True},
            experts=ExpertTerms(("num_local_experts",), width="intermediate_size", optional=True),
        ),
    ),
    Family(
        class_names=("NemotronHForCausalLM",),
        architectures={"relu2": "nemotron_h"},
        layer=_nemotron_layer, ends=_NEMOTRON_ENDS, keys=_nemotron_keys,
        terms=Terms(
            activation="mlp_hidden_act", epsilon="layer_norm_epsilon",
            defaults={"layer_norm_epsilon": 1e-5, "use_conv_bias": True},
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
                "mamba_conv_bias": True,
                "rms_norm_eps": 1e-5,
            },
        ),
        head_factor=lambda config: _factor(config.values, "lm_head_multiplier"),
    ),
)  # fmt: skip
