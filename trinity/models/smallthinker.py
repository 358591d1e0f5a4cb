"""smallthinker (SmallThinker 4B-A0.6B, 21B-A3B): the router reads the input of the whole layer.

Experts have ReLU. The first layer of each period sees all positions and does not rotate; the others
have a window. A model without windows rotates in every layer.
Source: llama.cpp src/models/smallthinker.cpp and conversion/smallthinker.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.table import Table, attention, experts, pre_norm_layer
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, expert_blocks
from trinity.models.activation_operations import Clamp
from trinity.models.architecture import Architecture, Has
from trinity.models.expert_operations import ExpertGated
from trinity.models.operations import Operation

_PERIOD = 4


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    windowed = bool(config.sliding_window) and index % _PERIOD != 0
    window = (config.sliding_window or 0) if windowed else 0
    rotates = windowed or not config.sliding_window
    rotation = blocks.rotation_of(config, window) if rotates else None
    attention = blocks.attention(config, rotation, window=window)
    router = expert_blocks.router(config)
    return [
        replace(router, x="x"),
        *blocks.attention_branch(config, has, attention),
        expert_blocks.route(config, has, "sigmoid", normalize=True),
        *_with_relu(expert_blocks.mixture(config, has, "silu")),
    ]


def _with_relu(operations: list[Operation]) -> Iterator[Operation]:
    for operation in operations:
        if isinstance(operation, ExpertGated):
            yield Clamp(operation.gate, operation.width, 0.0, math.inf, of_experts=True)
            yield replace(operation, activation="none")
        else:
            yield operation


ARCHITECTURES = (Architecture(("smallthinker",), _layer, rope_halves=True, needs=("experts",)),)

# -- In published checkpoints --

_MOE = "block_sparse_moe"
_LAYER: Table = pre_norm_layer(
    attention(),
    {
        "ffn_gate_inp": f"{_MOE}.primary_router",
        **experts(f"{_MOE}.experts", gate="gate", up="up", down="down"),
    },
)


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "moe_enable_early_router": (None, True),
            "moe_enable_secondary_experts": (None, False),
        },
    )
    softmax = values.flag("moe_primary_router_apply_softmax")
    keys: dict[str, object] = {
        "intermediate_size": expert_blocks.experts_of(config).intermediate_size,
        "expert_gating": 1 if softmax else mixture.SIGMOID,
    }
    windows = _layout(config, values, "sliding_window_layout")
    turns = _layout(config, values, "rope_layout")
    usual = [int(layer % _PERIOD != 0) for layer in range(config.num_layers)]
    if windows == usual and turns == usual:
        keys["sliding_window"] = values.size("sliding_window_size", "sliding_window", 4096)
    elif any(windows) or not all(turns):
        raise UnsupportedError(
            f"{values.source}: sliding_window_layout and rope_layout are {shown(windows)} and "
            f"{shown(turns)}; in GGUF both are 0 for the first layer of each {_PERIOD} and 1 for "
            "the others, or no layer has a window and all rotate"
        )
    return keys


def _layout(config: ModelConfig, values: Values, key: str) -> list[object]:
    """Return a list with 0 or 1 for each layer."""
    default = [int(key == "rope_layout")] * config.num_layers
    found = values.values.get(key, default)
    if not isinstance(found, list) or len(found) != config.num_layers:
        raise values.error(key, f"must have {config.num_layers} values, one for each layer")
    return found


FAMILY = Family(
    classes={"SmallThinkerForCausalLM": "smallthinker"},
    layer=_LAYER,
    keys=_keys,
    rope_types=(),
    defaults={"rms_norm_eps": 1e-6},
    experts=ExpertTerms(
        ("moe_num_primary_experts",),
        used="moe_num_active_primary_experts",
        width="moe_ffn_hidden_size",
    ),
    older={"intermediate_size": "moe_ffn_hidden_size"},
)
