"""laguna (poolside's Laguna): gated attention with heads by layer, sigmoid experts, a shared one.

A full layer is followed by three with a window, which may have more query heads. Layers without a
window rotate a part of each head, with YaRN; the others rotate whole heads, with a base of their
own. The outputs of attention are multiplied by the softplus of gates, one per head or per value.
Source: llama.cpp src/models/laguna.cpp and conversion/laguna.py; transformers' Laguna. llama.cpp
does not read the attention factor of YaRN that its converter writes; here it has transformers'
meaning.
"""

from __future__ import annotations

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import mixture, table
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation
from trinity.models.step35 import head_gated_branch

_PERIOD = 4  # the first layer of each period sees all positions


def _window(config: ModelConfig, index: int) -> int:
    """The window of a layer; 0 if it has none."""
    pattern = config.sliding_window_pattern
    if isinstance(pattern, tuple):
        return config.window_of(index, 0)
    return (config.sliding_window or 0) if index % (pattern or _PERIOD) else 0


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    window, config = _window(config, index), config.of_layer(index)
    rotation = blocks.unscaled_in_windows(config, window)
    attention = blocks.attention(config, rotation, window=window)
    return [
        *head_gated_branch(config, has, attention, "softplus"),
        *expert_blocks.after_dense_layers(config, index, has, gating="sigmoid"),
    ]


ARCHITECTURES = (
    Architecture(
        ("laguna",), _layer, rope_halves=True, heads_by_layer=True, needs=("experts",)
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_LAYER: table.Table = {
    "attn_norm": "input_layernorm",
    **table.attention(bias="attention_bias", output_bias="attention_bias"),
    **table.head_norms(),
    "attn_gate": "self_attn.g_proj",
    "ffn_norm": "post_attention_layernorm",
    **table.gated(),
    "ffn_gate_inp": "mlp.gate",
    "exp_probs_b.bias": table.tensor(
        "mlp.experts.e_score_correction_bias", "mlp.gate.e_score_correction_bias"
    ),
    **table.experts("mlp.experts"),
    **{
        f"ffn_{name}_shexp": table.at(
            f"mlp.shared_expert.{name}_proj", f"mlp.shared_experts.{name}_proj"
        )
        for name in ("gate", "up", "down")
    },
}


def _prepared(values: Values) -> Values:
    """Return the values without those of rotation that the class ignores."""
    ignored = ("rope_theta", "rope_scaling", "partial_rotary_factor")
    return Values({k: v for k, v in values.values.items() if k not in ignored}, values.source)


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "gating": (True, "per-head", "per-element"),
            "moe_apply_router_weight_on_input": (None, False),
            "moe_router_logit_softcapping": (None, 0),
            "swa_attention_sink_enabled": (None, False),
        },
    )
    _check_gates(config, values)
    return {
        "num_heads": np.array(_heads(config, values), np.int32),
        "rope_dim_swa": config.head_dim if config.sliding_window else None,
        "shared_intermediate_size": values.size(
            "shared_expert_intermediate_size", "shared_intermediate_size"
        ),
        "expert_scale": values.real("moe_routed_scaling_factor", "expert_scale", 1.0),
        "expert_normalize": True,
        "expert_gating": mixture.SIGMOID,
        "first_dense_layers": mixture.listed_dense_layers(config, values, 1),
    }


def _heads(config: ModelConfig, values: Values) -> list[int]:
    """Return the number of query heads of each layer."""
    key = "num_attention_heads_per_layer"
    heads = values.values.get(key, [config.num_heads] * config.num_layers)
    if not isinstance(heads, list) or len(heads) != config.num_layers:
        raise values.error(key, f"must be a list of {config.num_layers} numbers")
    return [Values({key: number}, values.source).size(key, "num_heads") for number in heads]


def _check_gates(config: ModelConfig, values: Values) -> None:
    """Raise UnsupportedError if layers' kinds of gates differ from ``gating``."""
    kinds = values.values.get("gating_types")
    if kinds is None:
        return
    kind = "per_element" if values.values["gating"] == "per-element" else "per_head"
    own = [str(one).replace("-", "_") for one in kinds] if isinstance(kinds, list) else []
    if own != [kind] * config.num_layers:
        raise UnsupportedError(
            f"{values.source}: gating_types is {shown(kinds)}, but gating is "
            f"{shown(values.values['gating'])}, which transformers follows"
        )


FAMILY = Family(
    classes={"LagunaForCausalLM": "laguna"},
    layer=_LAYER,
    prepare=_prepared,
    keys=_keys,
    windows=WindowTerms(1, gguf="layers"),  # if layers are not listed, none has a window
    partial_rope=True,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "sliding_window": 512,
        "gating": True,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "full_attention": {"rope_theta": 500_000.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_theta": 10_000.0},
        },
    },
    experts=ExpertTerms(("num_experts", "num_local_experts")),
)
