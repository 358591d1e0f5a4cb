"""granite, granitemoe and granitehybrid: llama with four scales.

The scales multiply embeddings, attention scores, branches and logits. granitemoe has experts, in
some models also a shared one. granitehybrid has Mamba-2 in layers without key-value heads.
Source: llama.cpp src/models/granite.cpp and granite-hybrid.cpp; transformers' Granite, GraniteMoe,
GraniteMoeShared and GraniteMoeHybrid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from trinity.config import ModelConfig, SSMConfig
from trinity.errors import UnsupportedError
from trinity.formats.config_limits import field_values
from trinity.formats.huggingface import recurrent, table
from trinity.formats.huggingface.config import ExpertTerms, class_name_of
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, expert_blocks, mamba_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import LAYER
from trinity.models.operations import Operation


def layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    """A layer of granite's families."""
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *_mixer(config, index, has),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *feed_forward(config, has),
    ]


def _mixer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    scale = config.residual_scale or 1.0
    if not config.kv_heads_of(index):
        return mamba_blocks.mamba(config, has, scale=scale)
    rotation = blocks.rotation_of(config) if config.rope_finetuned else None
    config = replace(config, num_kv_heads=config.kv_heads_of(index))
    return [
        *blocks.projections(config, has),
        *blocks.attention(config, rotation, scale=config.attention_scale),
        blocks.attention_output(config, scale=scale),
    ]


def feed_forward(
    config: ModelConfig, has: Has, form: Literal["gate and up", "fused"] = "gate and up"
) -> list[Operation]:
    """The feed-forward, or experts and the shared expert, which has this ``form``."""
    scale = config.residual_scale or 1.0
    if not config.experts:
        return blocks.feed_forward(config, "silu", scale=scale)
    return [
        *expert_blocks.routed(config, has, "silu", size=config.intermediate_size, scale=scale),
        *expert_blocks.shared_expert(config, "silu", scale=scale, form=form),
    ]


def architecture(
    name: str,
    layer: Callable[[ModelConfig, int, Has], list[Operation]],
    *needs: str,
    mixed: bool = False,
) -> Architecture:
    """Declare an architecture with granite's scales."""
    return Architecture(
        (name,), layer, rope_halves=False,
        embedding_scale=lambda config: config.embedding_scale or 1.0,
        logit_scale=lambda config: 1 / config.logit_scale,
        needs=("logit_scale", *needs), mixed=mixed,
    )  # fmt: skip


ARCHITECTURES = (
    architecture("granite", layer),
    architecture("granitemoe", layer, "experts"),
    architecture("granitehybrid", layer, "ssm", mixed=True),
)

# -- In transformers' checkpoints --

SCALES = {
    "attention_scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
NO_SCALES: dict[str, object] = dict.fromkeys(SCALES.values(), 1.0)


ATTENTION = table.attention(bias="attention_bias", output_bias="attention_bias", permuted=True)
_MOE, _SHARED = "block_sparse_moe", "shared_mlp"
_GATE, _UP = table.both_rows(f"{_MOE}.input_linear.weight", f"{_MOE}.switch_mlp.{{}}_proj.weight")
_SHARED_GATE, _SHARED_UP = table.both_rows(f"{_SHARED}.input_linear.weight")
_DOWN = ("output_linear", "switch_mlp.down_proj")  # of transformers and of mlx-lm
# Experts and the shared expert.
EXPERTS: table.Table = {
    "ffn_gate_inp": f"{_MOE}.router.layer",
    "ffn_gate_exps": _GATE,
    "ffn_up_exps": _UP,
    "ffn_down_exps": table.TableRow(tuple(Stored((f"{_MOE}.{name}.weight",)) for name in _DOWN)),
    "ffn_gate_shexp": _SHARED_GATE,
    "ffn_up_shexp": _SHARED_UP,
    "ffn_down_shexp": f"{_SHARED}.output_linear",
}
_EXPERT_LAYER = table.pre_norm_layer(ATTENTION, EXPERTS)


def _shared_width(values: Values) -> int:
    """The width of the shared expert; 0 in classes without one."""
    if class_name_of(values) == "GraniteMoeForCausalLM":
        return 0
    return values.size("shared_intermediate_size", "shared_intermediate_size", 0, smallest=0)


def _expert_keys(config: ModelConfig, values: Values) -> Keys:
    shared = _shared_width(values)
    return {
        "expert_intermediate_size": None,  # the feed_forward_length of models without the key
        "shared_intermediate_size": shared or None,
    }


_GRANITE_KINDS = {
    "mamba": True, "attention": False, "linear_attention": True, "full_attention": False,
}  # fmt: skip


def _granite_states(config: ModelConfig, values: Values) -> SSMConfig:
    recurrent.check_plain(values, "mamba_proj_bias")
    expand = values.size("mamba_expand", "ssm_expand", 2)
    return recurrent.checked(
        values, "mamba_n_heads",
        SSMConfig(
            values.size("mamba_d_conv", "ssm_conv_kernel", 4),
            expand * config.hidden_size,
            values.size("mamba_d_state", "ssm_state_size", 256),
            values.size("mamba_n_groups", "ssm_num_groups", 1),
            values.size("mamba_n_heads", "ssm_num_heads", 128),
        ),
    )  # fmt: skip


# The second names are mlx-lm's.
_DENSE_GATE, _DENSE_UP = table.both_rows("shared_mlp.input_linear.weight", "mlp.{}_proj.weight")


def _granite_layer(config: ModelConfig, values: Values) -> table.Table:
    dense = {
        "ffn_gate": _DENSE_GATE,
        "ffn_up": _DENSE_UP,
        "ffn_down": table.at("shared_mlp.output_linear", "mlp.down_proj"),
    }
    states = recurrent.mamba_table(config, "mamba", "mamba_conv_bias")
    return table.pre_norm_layer({**states, **ATTENTION}, EXPERTS if config.experts else dense)


def _granite_keys(config: ModelConfig, values: Values) -> Keys:
    has_states = recurrent.layer_kinds(config, values, _GRANITE_KINDS)
    kinds = ("rope", "nope", None)
    position = values.values.get("position_embedding_type")
    if position not in kinds:
        raise UnsupportedError(
            f"{values.source}: position_embedding_type is {shown(position)}; trinity reads rope "
            "and nope"
        )
    shared = values.size("shared_intermediate_size", "shared_intermediate_size", 0, smallest=0)
    return {
        **field_values(_granite_states(config, values)),
        "num_kv_heads": recurrent.kv_heads(config, has_states),
        "rope_finetuned": position == "rope",
        "intermediate_size": config.intermediate_size if config.experts else shared,
        "num_experts": config.experts.num_experts if config.experts else 0,
        "num_experts_per_tok": config.experts.num_experts_per_tok if config.experts else 0,
        "expert_intermediate_size": None,
        "shared_intermediate_size": shared or None,
    }


FAMILIES = (
    Family(
        classes={"GraniteForCausalLM": "granite"}, layer=LAYER, fields=SCALES, defaults=NO_SCALES
    ),
    Family(
        classes={
            "GraniteMoeForCausalLM": "granitemoe",
            "GraniteMoeSharedForCausalLM": "granitemoe",
        },
        layer=_EXPERT_LAYER,
        keys=_expert_keys,
        fields=SCALES,
        defaults=NO_SCALES,
        experts=ExpertTerms(("num_local_experts",), width="intermediate_size"),
    ),
    Family(
        classes={"GraniteMoeHybridForCausalLM": "granitehybrid"},
        layer=_granite_layer,
        keys=_granite_keys,
        mlx_turns=True,
        fields=SCALES,
        defaults={"mamba_conv_bias": True, **NO_SCALES},
        experts=ExpertTerms(("num_local_experts",), width="intermediate_size", optional=True),
    ),
)
