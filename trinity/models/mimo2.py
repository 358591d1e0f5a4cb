"""mimo2 (MiMo V2 Flash, V2.5): windowed layers with sinks and more key heads.

Values are narrower than keys, and have a factor. The first layer is dense; the others have experts
by sigmoid, with a bias that only affects the choice. MTP layers are not used.
Source: llama.cpp src/models/mimo2.cpp and conversion/mimo.py; transformers' MiMoV2Flash.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other, windowed_layers
from trinity.formats.huggingface.table import (
    Table,
    at,
    attention,
    experts,
    gated,
    pre_norm_layer,
    tensor,
)
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_PERIOD = 6  # the first layer, and the last of each period, see all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    config = replace(config, num_kv_heads=config.kv_heads_of(index))
    window = config.window_of(index, _PERIOD)
    attention = blocks.attention(
        config,
        blocks.rotation_of(config, window),
        window=window,
        sinks="attn_sinks" if has("attn_sinks") else "",
    )
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has, head_norms=False),
        *attention,
        blocks.attention_output(config, scale=config.attention_value_scale or 1.0),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *_feed_forward(config, has),
    ]


def _feed_forward(config: ModelConfig, has: Has) -> list[Operation]:
    if not has("ffn_gate_inp"):
        return blocks.feed_forward(config, "silu")
    return expert_blocks.routed(config, has, "silu", gating="sigmoid")


ARCHITECTURES = (
    Architecture(
        ("mimo2",), _layer, rope_halves=True,
        needs=("experts", "sliding_window", "sliding_window_pattern"),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_KINDS = ("full_attention", "sliding_attention")
_THETAS = {"full_attention": 5e6, "sliding_attention": 1e4}
_SHARE = 0.334  # of a head that rotates


def _prepared(values: Values) -> Values:
    """Return the values with kinds of layers and their rotations, also of older configurations."""
    given, layers = dict(values.values), values.size("num_hidden_layers", "num_layers")
    pattern = given.get("hybrid_layer_pattern")
    if not isinstance(pattern, list):
        pattern = [int(i > 0 and (i + 1) % _PERIOD != 0) for i in range(layers)]
    given.setdefault("layer_types", [_KINDS[bool(windowed)] for windowed in pattern])
    if values.has("sliding_window_size"):  # without the token itself
        given["sliding_window"] = values.size("sliding_window_size", "sliding_window") + 1
    if not values.has("rope_parameters"):
        given["rope_parameters"] = {
            kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": _SHARE}
            for kind, theta in _THETAS.items()
        }
        known = {"rope_theta": 5e6, "swa_rope_theta": 1e4, "partial_rotary_factor": _SHARE}
        refuse_other(values, {key: (None, value) for key, value in known.items()})
        for key in known:
            given.pop(key, None)
    given["rope_parameters"] = _rotations(Values(given, values.source))
    return Values(given, values.source)


def _rotations(values: Values) -> dict[str, object]:
    """Return the rotations of both kinds of layers, of which the same share of a head rotates."""
    parameters = values.inner("rope_parameters")
    key, (full, sliding) = "partial_rotary_factor", map(parameters.inner, _KINDS)
    shares = full.values.get(key), sliding.values.get(key)
    if shares[0] != shares[1]:
        raise UnsupportedError(
            f"{parameters.source}: {key} is {shown(shares[0])} and {shown(shares[1])}; in GGUF the "
            "same share of a head rotates in all layers"
        )
    rest = {name: value for name, value in sliding.values.items() if name != key}
    return {_KINDS[0]: dict(full.values), _KINDS[1]: rest}


def _table(config: ModelConfig, values: Values) -> Table:
    windows = [i for i, windowed in enumerate(windowed_layers(config)) if windowed]
    table: Table = pre_norm_layer(
        {
            **attention(bias="attention_bias"),
            "attn_sinks": replace(
                tensor("self_attn.attention_sink_bias", "self_attn.sinks"), layers=windows
            ),
        },
        {
            **gated(),
            # Layers of experts are those with this tensor.
            "ffn_gate_inp": replace(at("mlp.gate"), layers=_sparse_layers(config, values)),
            "exp_probs_b.bias": tensor("mlp.gate.e_score_correction_bias"),
            **experts("mlp.experts"),
        },
    )
    return table


def _sparse_layers(config: ModelConfig, values: Values) -> list[int]:
    kinds = values.values.get("mlp_layer_types", values.values.get("moe_layer_freq"))
    if kinds is None:
        kinds = ["dense"] + ["sparse"] * (config.num_layers - 1)
    if not isinstance(kinds, list) or len(kinds) != config.num_layers:
        raise values.error("mlp_layer_types", "must have a value for each layer")
    return [index for index, kind in enumerate(kinds) if kind in ("sparse", 1)]


def _keys(config: ModelConfig, values: Values) -> Keys:
    more = 2 * config.num_kv_heads  # key heads of layers with a window, as in the class
    if config.num_heads % more:
        raise values.error("num_key_value_heads", f"makes {more} in layers with a window")
    refuse_other(
        values,
        {
            "n_group": (None, 1), "topk_group": (None, 1), "norm_topk_prob": (None, True),
            "routed_scaling_factor": (None, 1, 1.0), "swa_num_key_value_heads": (None, more),
            "swa_num_attention_heads": (None, config.num_heads),
            "swa_head_dim": (None, config.head_dim),
            "add_full_attention_sink_bias": (None, False),
            "add_swa_attention_sink_bias": (None, True),
        },
    )  # fmt: skip
    heads = [more if windowed else config.num_kv_heads for windowed in windowed_layers(config)]
    return {
        "num_kv_heads": np.array(heads, np.int32),
        "value_dim": values.size("v_head_dim", "value_dim", 128),
        "attention_value_scale": values.real(
            "attention_value_scale", "attention_value_scale", 0.707
        ),
        "expert_gating": mixture.SIGMOID,
        "expert_normalize": True,
    }


FAMILY = Family(
    classes={"MiMoV2FlashForCausalLM": "mimo2"},
    layer=_table,
    prepare=_prepared,
    keys=_keys,
    unused=r"model\.mtp\..*",
    windows=WindowTerms(_PERIOD, gguf="layers"),
    rope_types=(),
    partial_rope=True,
    defaults={
        "head_dim": 192,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5,
        "sliding_window": 129,
        "tie_word_embeddings": False,
    },
    experts=ExpertTerms(("n_routed_experts", "num_local_experts")),
    older={"rms_norm_eps": "layernorm_epsilon"},
)
