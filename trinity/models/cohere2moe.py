"""cohere2moe: cohere2 with experts, and a shared one, after dense layers.

Layers with a window rotate, and so do the dense ones.
Source: llama.cpp src/models/cohere2moe.cpp; transformers' Cohere2Moe.
"""

from __future__ import annotations

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import (
    ExpertTerms,
    WindowTerms,
    every_layer_but_each_last_of,
)
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other, windowed_layers
from trinity.formats.huggingface.table import Table, attention
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_PERIOD = 4  # transformers' default: the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    window, experts = config.window_of(index, 0), expert_blocks.experts_of(config)
    rotates = window or index < experts.first_dense_layers
    rotation = blocks.rotation_of(config, window) if rotates else None
    return [
        blocks.norm(config, "x", "attn_norm", "h", kind="rms" if config.rms_norms else "layer"),
        *blocks.projections(config, has, head_norms=False),
        *blocks.attention(config, rotation, window=window),
        blocks.attention_output(config),
        *_feed_forward(config, index, has),
    ]


def _feed_forward(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    experts = expert_blocks.experts_of(config)
    if index < experts.first_dense_layers:
        return blocks.feed_forward(config, "silu")
    scale = 0.5 if experts.shared_intermediate_size else 1.0  # the mean of both
    return [
        *expert_blocks.routed(
            config, has, "silu", gating="sigmoid", normalize=False, scale=scale,
            size=config.intermediate_size,
        ),
        *expert_blocks.shared_expert(config, "silu", scale=scale),
    ]  # fmt: skip


ARCHITECTURES = (
    Architecture(
        ("cohere2moe",), _layer, rope_halves=False, norm="layer", rms_by_key=True,
        logit_scale=lambda config: config.logit_scale,
        needs=("experts", "logit_scale", "sliding_window"),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_LAYER: Table = {
    "attn_norm": "input_layernorm",
    **attention(bias="attention_bias", output_bias="attention_bias"),
    **mixture.FEED_FORWARD,
}
_SOFTMAX_CHOSEN = 3  # of expert_gating_func


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "shared_expert_combination_strategy": (None, "average"),
            "expert_selection_fn": (None, "softmax", "sigmoid"),
        },
    )
    sigmoid = values.values.get("expert_selection_fn") == "sigmoid"
    dense = values.size("first_k_dense_replace", "first_dense_layers", 0, smallest=0)
    dense = mixture.listed_dense_layers(config, values, dense)
    if dense and values.size("prefix_dense_sliding_window_pattern", "num_layers", 1) != 1:
        raise UnsupportedError(
            f"{values.source}: prefix_dense_sliding_window_pattern is not 1; in GGUF dense layers "
            "always rotate"
        )
    if not config.sliding_window:
        raise UnsupportedError(
            f"{values.source}: no layer has a window; GGUF's files of this class have one"
        )
    width = config.experts.intermediate_size if config.experts else 0
    shared = values.size("num_shared_experts", "num_shared_experts", 0, smallest=0)
    prefix = "prefix_dense_intermediate_size"
    return {
        "rope_type": "none",
        "attention.layer_norm_rms_epsilon": _rms_epsilon(values),
        "first_dense_layers": dense,
        "intermediate_size": values.size(prefix, "intermediate_size", width),
        "expert_gating": mixture.SIGMOID if sigmoid else _SOFTMAX_CHOSEN,
        "expert_normalize": sigmoid and values.flag("norm_topk_prob", True),
        "num_shared_experts": shared or None,
        "shared_intermediate_size": width * shared or None,
        "sliding_window_pattern": np.array(_windowed(config, values, dense), np.bool_),
    }


def _rms_epsilon(values: Values) -> float | None:
    """Return the epsilon of RMS norms; None if the norms are LayerNorm."""
    key = "rms_norm_eps"
    return values.real(key, key) if values.has(key) else None


def _windowed(config: ModelConfig, values: Values, dense: int) -> tuple[bool, ...]:
    """Return which layers have the window; by default the periods begin after the dense layers."""
    if values.has("layer_types"):
        return windowed_layers(config)
    period = values.size("sliding_window_pattern", "sliding_window_pattern", _PERIOD)
    return (False,) * dense + every_layer_but_each_last_of(period, config.num_layers - dense)


FAMILY = Family(
    classes={"Cohere2MoeForCausalLM": "cohere2moe"},
    layer=_LAYER,
    keys=_keys,
    unused=mixture.unused,
    windows=WindowTerms(_PERIOD, gguf="layers"),
    fields={"logit_scale": "logit_scale"},
    epsilon="layer_norm_eps",
    rope_types=(),
    defaults={
        "logit_scale": 0.0625,
        "layer_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "sliding_window": 4096,
        "head_dim": 128,
        "num_experts": 8,
        "num_experts_per_tok": 2,
    },
    experts=ExpertTerms(("num_experts", "num_local_experts"), width="intermediate_size"),
)
