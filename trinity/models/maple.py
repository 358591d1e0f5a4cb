"""maple (Maple 20B-A1B): ternary experts whose gates are limited, windowed layers that rotate.

Layers without a window do not rotate positions.
Source: llama.cpp src/models/maple.cpp and conversion/maple.py; transformers has no such class.
"""

from __future__ import annotations

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import ConfigError
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.table import attention, experts, head_norms, pre_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_LIMIT = 7.0  # of gate and up; the class has no other


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    limits = expert_blocks.experts_of(config).swiglu_limits
    if limits and limits[index] != _LIMIT:
        limit = f"{limits[index]:g}"
        raise ConfigError(f"maple.swiglu_clamp_exp is {limit}; trinity supports only {_LIMIT:g}")
    attention = blocks.windowed_attention(config, index, 0)
    return [
        *blocks.attention_branch(config, has, attention, head_norms=True),
        *expert_blocks.routed(config, has, "swiglu_7"),
    ]


ARCHITECTURES = (
    Architecture(("maple",), _layer, rope_halves=True, needs=("experts", "sliding_window")),
)

# -- In checkpoints --


def _keys(config: ModelConfig, values: Values) -> Keys:
    for key, expected, default in (
        ("norm_topk_prob", True, True), ("nope_on_global_attention", True, False),
        ("num_shared_experts", 0, 0),
    ):  # fmt: skip
        if values.values.get(key, default) != expected:
            raise values.error(key, f"must be {expected}; GGUF cannot express other values")
    limits = np.full(config.num_layers, _LIMIT, np.float32)
    return {"expert_swiglu_limits": limits}


FAMILY = Family(
    classes={"MapleForCausalLM": "maple"},
    layer=pre_norm_layer(
        {**attention(), **head_norms()},
        {"ffn_gate_inp": "mlp.gate", **experts("mlp.experts")},
    ),
    keys=_keys,
    windows=WindowTerms(gguf="layers"),
    partial_rope=True,
    experts=ExpertTerms(("num_experts",)),
)  # fmt: skip
