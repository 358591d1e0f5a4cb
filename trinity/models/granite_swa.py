"""granite_swa: granite with windowed layers, attention sinks, and layers that do not rotate.

Models may have experts, and a shared one.
Source: llama.cpp src/models/granite-swa.cpp; transformers' GraniteSWA and GraniteMoeSWA.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import windowed_layers
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, granite
from trinity.models.architecture import Has
from trinity.models.operations import Operation

_PERIOD = 4  # transformers' default: the first layer of each period has no window


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    scale = config.residual_scale or 1.0
    rotates = config.rope_layers[index] if config.rope_layers else True
    attention = blocks.attention(
        config, blocks.rotation_of(config) if rotates else None,
        window=config.window_of(index, 0), scale=config.attention_scale, sinks="attn_sinks",
    )  # fmt: skip
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *attention,
        blocks.attention_output(config, scale=scale),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *granite.feed_forward(config, has, "fused"),
    ]


ARCHITECTURES = (granite.architecture("granite_swa", _layer, "sliding_window"),)

# -- In transformers' checkpoints --

_DEFAULTS = {**granite.NO_SCALES, "sliding_window": 128}
_ATTENTION: table.Table = {**granite.ATTENTION, "attn_sinks": table.tensor("self_attn.sinks")}
_DENSE_LAYER = table.pre_norm_layer(_ATTENTION, table.gated(bias="mlp_bias"))
_MOE = "block_sparse_moe"
_GATE, _UP = table.both_rows(f"{_MOE}.experts.gate_up_proj", f"{_MOE}.switch_mlp.{{}}_proj.weight")
_EXPERT_LAYER = table.pre_norm_layer(
    _ATTENTION,
    {
        "ffn_gate_inp": f"{_MOE}.router",
        "ffn_gate_exps": _GATE,
        "ffn_up_exps": _UP,
        "ffn_down_exps": table.tensor(
            f"{_MOE}.experts.down_proj", f"{_MOE}.switch_mlp.down_proj.weight"
        ),
        "ffn_up_shexp": "shared_mlp.input_linear",
        "ffn_down_shexp": "shared_mlp.output_linear",
    },
)


def _keys(config: ModelConfig, values: Values) -> Keys:
    windowed = windowed_layers(config)
    if not values.has("layer_types"):
        windowed = tuple(layer % _PERIOD != 0 for layer in range(config.num_layers))
    if not config.sliding_window:
        raise UnsupportedError(
            f"{values.source}: sliding_window is {shown(values.values.get('sliding_window'))}, or "
            "no layer has one; llama.cpp and trinity run this class with windowed layers"
        )
    return {
        "sliding_window_pattern": np.array(windowed, np.bool_),
        **_rotation_keys(config, values),
    }


def _rotation_keys(config: ModelConfig, values: Values) -> Keys:
    """Return the base of the layers that rotate, and which these are."""
    listed = values.values.get("layer_rope_theta")
    if listed is None:
        return {}
    found = listed if isinstance(listed, list) else []
    bases = [base for base in found if isinstance(base, int | float)]
    rotated = {float(base) for base in bases if base}
    if len(bases) != config.num_layers or bases != listed or len(rotated) > 1:
        raise UnsupportedError(
            f"{values.source}: layer_rope_theta is {shown(listed)}; GGUF can express one number "
            "for each layer, the same or 0"
        )
    keys: dict[str, object] = {}
    if rotated:
        keys["rope_theta"] = max(rotated)
    if not all(bases):
        keys["rope_layers"] = np.array([bool(base) for base in bases], np.bool_)
    return keys


def _expert_keys(config: ModelConfig, values: Values) -> Keys:
    shared = values.size("shared_intermediate_size", "shared_intermediate_size", 0, smallest=0)
    return {
        **_keys(config, values),
        "expert_intermediate_size": None,  # feed_forward_length is an expert's
        "shared_intermediate_size": shared or None,
    }


_DENSE_DEFAULTS = {"num_key_value_heads": 4, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
_DENSE = Family(
    classes={"GraniteSWAForCausalLM": "granite_swa"},
    layer=_DENSE_LAYER,
    keys=_keys,
    windows=WindowTerms(gguf="layers"),
    fields=granite.SCALES,
    defaults={**_DEFAULTS, **_DENSE_DEFAULTS},
)
FAMILIES = (
    _DENSE,
    replace(
        _DENSE,
        classes={"GraniteMoeSWAForCausalLM": "granite_swa"},
        layer=_EXPERT_LAYER,
        keys=_expert_keys,
        defaults=_DEFAULTS,
        experts=ExpertTerms(("num_local_experts",), width="intermediate_size"),
    ),
)
