"""lfm2 and lfm2moe: gated short convolutions in layers without key-value heads.

lfm2moe has experts after its first layers, chosen by sigmoid.
Source: llama.cpp src/models/lfm2.cpp; transformers' Lfm2 and Lfm2Moe.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.recurrent import layer_kinds
from trinity.formats.huggingface.stored import Stored, taps
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Gated, Linear, Operation, Product
from trinity.models.recurrent_operations import CausalConv


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    experts = config.experts
    dense = experts is None or index < experts.first_dense_layers
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *_mixer(config, index, has),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *(blocks.feed_forward(config, "silu") if dense else _experts(config, has)),
    ]


def _mixer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    if not config.kv_heads_of(index):
        return _short_convolution(config)
    config = replace(config, num_kv_heads=config.kv_heads_of(index))
    return [
        *blocks.projections(config, has, head_norms=True),
        *blocks.plain_attention(config),
        blocks.attention_output(config),
    ]


def _short_convolution(config: ModelConfig) -> list[Operation]:
    hidden, taps = config.hidden_size, config.short_conv_kernel
    if taps < 2:
        raise ConfigError(
            f"{config.architecture}.shortconv.l_cache is {taps}; it must be 2 or more"
        )
    products = (
        Product("shortconv.in_proj", "b", hidden),
        Product("shortconv.in_proj", "c", hidden, first=hidden),
        Product("shortconv.in_proj", "u", hidden, first=2 * hidden),
    )
    return [
        Linear("h", hidden, products),
        Gated("none", hidden, gate="u", up="b"),
        CausalConv("u", "shortconv.conv", hidden, taps),
        Gated("none", hidden, gate="c", up="u"),
        Linear("c", hidden, (Product("shortconv.out_proj", "x", hidden),), add=True),
    ]


def _experts(config: ModelConfig, has: Has) -> list[Operation]:
    return expert_blocks.routed(config, has, "silu", gating="sigmoid")


ARCHITECTURES = tuple(
    Architecture(
        (name,), _layer, rope_halves=True, output_norm="token_embd_norm", needs=needs, mixed=True
    )
    for name, needs in (
        ("lfm2", ("short_conv_kernel",)),
        ("lfm2moe", ("short_conv_kernel", "experts")),
    )
)  # fmt: skip

# -- In transformers' checkpoints --

_KINDS = {"conv": True, "full_attention": False}


_ENDS: table.Table = {**table.EMBEDDING, "token_embd_norm": "model.embedding_norm"}
_LAYER: table.Table = {
    "attn_norm": "operator_norm",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.conv": table.TableRow((Stored(("conv.conv.weight",), taps),)),
    "shortconv.out_proj": "conv.out_proj",
    **table.attention(output="out_proj"),
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "ffn_norm": "ffn_norm",
    # The second names are mlx-lm's.
    "ffn_gate": table.at("feed_forward.w1", "feed_forward.gate_proj"),
    "ffn_up": table.at("feed_forward.w3", "feed_forward.up_proj"),
    "ffn_down": table.at("feed_forward.w2", "feed_forward.down_proj"),
    "ffn_gate_inp": "feed_forward.gate",
    "exp_probs_b.bias": table.tensor("feed_forward.expert_bias", when="use_expert_bias"),
    **table.experts("feed_forward.experts", gate="w1", up="w3", down="w2"),
}


def _dense_layers(config: ModelConfig, values: Values) -> int:
    if config.experts is None:
        return config.num_layers
    return values.size("num_dense_layers", "first_dense_layers", 2, smallest=0)


def _width(config: ModelConfig, values: Values) -> int:
    """The width of a dense feed-forward, computed as in transformers' Lfm2MLP."""
    width = values.size("block_ff_dim", "intermediate_size", config.intermediate_size)
    if config.experts is not None or not values.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    if values.has("block_ffn_dim_multiplier"):
        width = int(values.real("block_ffn_dim_multiplier", "multiplier") * width)
    step = values.size("block_multiple_of", "intermediate_size", 256)
    return -(-width // step) * step


def _kinds(config: ModelConfig, values: Values) -> tuple[bool, ...]:
    """Whether each layer is a convolution; older configurations list the attention layers."""
    full = values.values.get("full_attn_idxs")
    if values.has("layer_types") or not isinstance(full, list):
        return layer_kinds(config, values, _KINDS)
    return tuple(layer not in full for layer in range(config.num_layers))


def _keys(config: ModelConfig, values: Values) -> Keys:
    if values.flag("conv_bias"):
        raise UnsupportedError(
            f"{values.source}: conv_bias is true, which is not supported: GGUF files of this model "
            "class have no such bias"
        )
    kinds = _kinds(config, values)
    kv_heads = np.array(
        [0 if is_convolution else config.num_kv_heads for is_convolution in kinds], np.int32
    )
    return {
        "num_kv_heads": kv_heads,
        "intermediate_size": _width(config, values),
        "attention.layer_norm_epsilon": None,
        "rms_norm_eps": config.rms_norm_eps,
    }


def _expert_keys(config: ModelConfig, values: Values) -> Keys:
    for key, expected in (("norm_topk_prob", True), ("routed_scaling_factor", 1.0)):
        if values.values.get(key, expected) != expected:
            raise UnsupportedError(
                f"{values.source}: {key} is {shown(values.values[key])}, which is not supported: "
                f"GGUF files of this model class always imply {str(expected).lower()}"
            )
    return {
        **_keys(config, values),
        "first_dense_layers": _dense_layers(config, values),
        "expert_gating": 2,
    }


_FIELDS = {"short_conv_kernel": "conv_L_cache"}
# Older configurations give the width as block_ff_dim.
_DEFAULTS: dict[str, object] = {
    "rope_theta": 1000000.0, "tie_word_embeddings": True, "intermediate_size": 12288,
    "norm_eps": 1e-5, "use_expert_bias": True, "conv_L_cache": 3,
}  # fmt: skip
FAMILIES = (
    Family(
        classes={"Lfm2ForCausalLM": "lfm2"},
        wrappers={"Lfm2VlForConditionalGeneration": "lfm2"},
        layer=_LAYER, ends=_ENDS, keys=_keys, mlx_turns=True,
        epsilon="norm_eps", defaults=_DEFAULTS, fields=_FIELDS,
    ),
    Family(
        classes={"Lfm2MoeForCausalLM": "lfm2moe"},
        layer=_LAYER, ends=_ENDS, keys=_expert_keys, mlx_turns=True,
        epsilon="norm_eps", defaults=_DEFAULTS, fields=_FIELDS,
            experts=ExpertTerms(("num_experts",)),
    ),
)  # fmt: skip
