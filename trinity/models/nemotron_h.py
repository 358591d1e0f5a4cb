"""nemotron_h and nemotron_h_moe: layers of only Mamba-2, attention or a feed-forward.

A layer without key-value heads and without a feed-forward is Mamba-2; one with key-value heads is
attention, without rotation. The feed-forward has no gate; its activation is a squared ReLU.
Source: llama.cpp src/models/nemotron-h.cpp; transformers' NemotronH.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trinity.config import ModelConfig, SSMConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.config_limits import field_values
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.recurrent import check_plain, checked, kv_heads, mamba_table
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, expert_blocks, mamba_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Linear, Operation, Product


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    config = replace(
        config,
        num_kv_heads=config.kv_heads_of(index),
        intermediate_size=config.intermediate_size_of(index),
        layer_kv_heads=(),
        layer_intermediate_sizes=(),
    )
    return [blocks.norm(config, "x", "attn_norm", "h"), *_mixer(config, has)]


def _mixer(config: ModelConfig, has: Has) -> list[Operation]:
    if config.intermediate_size:
        return _feed_forward(config, has)
    if not config.num_kv_heads:
        return mamba_blocks.mamba(config, has)
    return [
        *blocks.projections(config, has),
        *blocks.attention(config, None, scale=config.attention_scale),
        blocks.attention_output(config),
    ]


def _feed_forward(config: ModelConfig, has: Has) -> list[Operation]:
    if config.experts is None or not has("ffn_gate_inp"):
        return blocks.feed_forward(config, "relu2", form="up")
    return [*_experts(config, has), *expert_blocks.shared_expert(config, "relu2", form="up")]


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    hidden, latent = config.hidden_size, expert_blocks.experts_of(config).latent_size
    if not latent:
        return expert_blocks.routed(config, has, "relu2", gating="sigmoid", gated=False)
    down, up = Product("ffn_latent_down", "latent", latent), Product("ffn_latent_up", "x", hidden)
    return [
        expert_blocks.router(config),
        expert_blocks.route(config, has, "sigmoid", True),
        Linear("h", hidden, (down,), scales_bias=True),
        *expert_blocks.mixture(
            config, has, "relu2", "latent_sum", add=False, gated=False, x="latent", width=latent
        ),
        Linear("latent_sum", latent, (up,), add=True, scales_bias=True),
    ]


ARCHITECTURES = (
    Architecture(
        ("nemotron_h",), _layer, rope_halves=False, needs=("ssm",), mixed=True
    ),
    Architecture(
        ("nemotron_h_moe",), _layer, rope_halves=False,
        needs=("ssm", "experts"), mixed=True,
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_NEMOTRON_LISTS = ("layers_block_type", "layer_types")
_MAMBA, _ATTENTION, _FEED_FORWARD, _EXPERTS = "M*-E"
_NEMOTRON_KINDS = {
    "mamba": _MAMBA, "attention": _ATTENTION, "mlp": _FEED_FORWARD, "moe": _EXPERTS,
    "linear_attention": _MAMBA, "full_attention": _ATTENTION,
}  # fmt: skip


# -- Nemotron-H ----------------------------------------------------------------------------------


def _pattern(config: ModelConfig, values: Values) -> str:
    """A letter for each layer."""
    listed = values.values.get(values.first_of(_NEMOTRON_LISTS))
    if isinstance(listed, list):
        unknown = [
            kind for kind in listed if not isinstance(kind, str) or kind not in _NEMOTRON_KINDS
        ]
        if unknown:
            raise UnsupportedError(
                f"{values.source}: layers_block_type has {shown(unknown[0])}; of this class "
                f"trinity reads {', '.join(_NEMOTRON_KINDS)}"
            )
        pattern = "".join(_NEMOTRON_KINDS[kind] for kind in listed)
    else:
        pattern = values.text("hybrid_override_pattern", "")
    if len(pattern) != config.num_layers or set(pattern) - set("M*-E"):
        raise ConfigError(
            f"{values.source}: hybrid_override_pattern is {shown(pattern)}; expected a letter of "
            f"M, *, - and E for each of the {config.num_layers} layers"
        )
    if config.experts is None and _EXPERTS in pattern:
        raise ConfigError(
            f"{values.source}: n_routed_experts is missing or 0, but hybrid_override_pattern is "
            f"{shown(pattern)}; E stands for a layer with experts"
        )
    return pattern


def _nemotron_states(values: Values) -> SSMConfig:
    check_plain(values, "mamba_proj_bias", "use_bias", "attention_bias", "mlp_bias")
    heads = values.size("mamba_num_heads", "ssm_num_heads")
    return checked(
        values, "mamba_num_heads",
        SSMConfig(
            values.size("conv_kernel", "ssm_conv_kernel", 4),
            heads * values.size("mamba_head_dim", "head_dim"),
            values.size("ssm_state_size", "ssm_state_size"),
            values.size(values.first_of(("n_groups", "mamba_n_groups")), "ssm_num_groups"),
            heads,
        ),
    )  # fmt: skip


_NEMOTRON_ENDS: table.Table = {
    "token_embd": table.at("model.embeddings", "model.embed_tokens"),
    "output_norm": table.at("model.norm_f", "model.norm"),
}


def _nemotron_layer(config: ModelConfig, values: Values) -> table.Table:
    source = "mixer"
    return {
        "attn_norm": "norm",
        **mamba_table(config, source, "use_conv_bias"),
        # GGUF permutes the rows of Q and K, although they do not rotate.
        **table.attention(module=source, permuted=True),
        # Layers of experts are those with this tensor.
        "ffn_gate_inp": table.TableRow((Stored((f"{source}.gate.weight",)),), optional=True),
        "exp_probs_b.bias": table.tensor(f"{source}.gate.e_score_correction_bias"),
        **table.experts(f"{source}.experts", gate=""),
        "ffn_latent_down": f"{source}.fc1_latent_proj",
        "ffn_latent_up": f"{source}.fc2_latent_proj",
        "ffn_up": f"{source}.up_proj",
        "ffn_down": f"{source}.down_proj",
        "ffn_up_shexp": f"{source}.shared_experts.up_proj",
        "ffn_down_shexp": f"{source}.shared_experts.down_proj",
    }


def _nemotron_shared(values: Values) -> int:
    """The intermediate size of the shared expert; transformers has exactly one."""
    key = "moe_shared_expert_intermediate_size"
    return values.size(key, "shared_intermediate_size")


def _latent_size(values: Values) -> int | None:
    """The size of the experts' inputs and results; None if it is that of the residual stream."""
    key = "moe_latent_size"
    return values.size(key, "expert_latent_size") if values.has(key) else None


def _nemotron_keys(config: ModelConfig, values: Values) -> Keys:
    # transformers makes steps at least time_step_min long; llama.cpp and mamba_ssm do not.
    known = {"mamba_hidden_act": (None, "silu"), "time_step_min": (None, 0, 0.001)}
    refuse_other(values, known)
    pattern = _pattern(config, values)
    widths = {_FEED_FORWARD: config.intermediate_size}
    keys: dict[str, object] = {}
    if config.experts is not None:
        widths[_EXPERTS] = config.experts.intermediate_size
        keys = {
            "expert_latent_size": _latent_size(values),
            "shared_intermediate_size": _nemotron_shared(values),
            "num_shared_experts": values.size(
                "n_shared_experts", "num_shared_experts", 0, smallest=0
            ) or None,
            "expert_normalize": values.flag("norm_topk_prob", True),
            "expert_scale": values.real("routed_scaling_factor", "expert_scale", 1.0),
            "num_expert_groups": values.size("n_group", "num_expert_groups", 1),
            "expert_groups_used": values.size("topk_group", "expert_groups_used", 1),
        }  # fmt: skip
    return {
        **keys,
        **field_values(_nemotron_states(values)),
        "num_kv_heads": kv_heads(config, tuple(letter != _ATTENTION for letter in pattern)),
        "intermediate_size": np.array([widths.get(letter, 0) for letter in pattern], np.int32),
        "rope_finetuned": False,
        "rope_theta": None,
    }


FAMILY = Family(
    classes={"NemotronHForCausalLM": "nemotron_h"},
    activations=("relu2",),
    layer=_nemotron_layer,
    ends=_NEMOTRON_ENDS,
    keys=_nemotron_keys,
    activation="mlp_hidden_act",
    epsilon="layer_norm_epsilon",
    defaults={"layer_norm_epsilon": 1e-5, "use_conv_bias": True},
    experts=ExpertTerms(("n_routed_experts",), optional=True, kinds=("moe", _EXPERTS)),
    kinds=(*_NEMOTRON_LISTS, "hybrid_override_pattern"),
    unused=r"(model\.)?mtp\..*",
    renames=(("backbone.", "model."),),
    with_experts="nemotron_h_moe",
    ties=False,
)
