"""bitnet and bitnet-b1.58 (also called bitnet-25): sub-norms before attn_output and ffn_down.

The two differ in the feed-forward's activation alone: SiLU in the 1bitLLM reproductions
(``bitnet``), squared ReLU in BitNet b1.58 2B-4T.
Source: llama.cpp src/models/bitnet.cpp; ik_llama.cpp build_bitnet_158; transformers' BitNet.

BitNet b1.58 2B-4T has transformers' names, the 1bitLLM reproductions have their own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from trinity.config import ModelConfig
from trinity.errors import ConfigError
from trinity.formats.huggingface.config import class_name_of
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import Table, at, attention, gated
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Norm, Operation


def _layer(config: ModelConfig, index: int, has: Has, activation: str) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config), window=config.window_of(index, 0)),
        Norm("a", "attn_sub_norm", "a", config.num_heads * config.head_dim),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward_hidden(config, activation),
        Norm("gate", "ffn_sub_norm", "gate", config.intermediate_size),
        blocks.feed_forward_output(config),
    ]


ARCHITECTURES = (
    Architecture(("bitnet",), partial(_layer, activation="silu"), True),
    Architecture(("bitnet-b1.58", "bitnet-25"), partial(_layer, activation="relu2"), True),
)

# -- In transformers' checkpoints --

_ATTENTION = attention(bias="attention_bias", output_bias="attention_bias")
_GATED = gated(bias="mlp_bias")
_LAYER: Table = {
    "attn_norm": "input_layernorm",
    **{name: _ATTENTION[name] for name in ("attn_q", "attn_k", "attn_v")},
    "attn_sub_norm": at("self_attn.attn_sub_norm", "self_attn.inner_attn_ln"),
    "attn_output": _ATTENTION["attn_output"],
    "ffn_norm": "post_attention_layernorm",
    **{name: _GATED[name] for name in ("ffn_gate", "ffn_up")},
    "ffn_sub_norm": at("mlp.ffn_sub_norm", "mlp.ffn_layernorm"),
    "ffn_down": _GATED["ffn_down"],
}


def _check(config: ModelConfig, values: Values) -> None:
    if config.num_heads * config.head_dim != config.hidden_size:
        raise ConfigError(
            f"{values.source}: num_attention_heads {config.num_heads} x head_dim "
            f"{config.head_dim} is not hidden_size {config.hidden_size}, as it must be in "
            f"{class_name_of(values)}"
        )


_FAMILY = Family(
    classes={"BitNetForCausalLM": "bitnet-b1.58"},
    activations=("relu2", "silu"),
    by_activation={"silu": "bitnet"},
    layer=_LAYER,
    check=_check,
    defaults={"hidden_act": "relu2", "rms_norm_eps": 1e-5, "rope_theta": 500_000.0},
    quantization=("bitnet",),
)
FAMILIES = (
    _FAMILY,
    replace(
        _FAMILY,
        classes={"BitnetForCausalLM": "bitnet-b1.58"},
        defaults={"rms_norm_eps": 1e-5},
        ternary=True,
    ),
)
