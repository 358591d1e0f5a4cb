"""LFM 2: short convolutions beside attention, dense and with experts."""

from __future__ import annotations

import numpy as np

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.recurrent import layer_kinds
from trinity.formats.huggingface.stored import Stored, taps
from trinity.formats.huggingface.table import (
    EMBEDDING,
    Table,
    TableRow,
    at,
    attention,
    experts,
    tensor,
)
from trinity.formats.huggingface.values import shown

_KINDS = {"conv": True, "full_attention": False}


_ENDS: Table = {**EMBEDDING, "token_embd_norm": "model.embedding_norm"}
_LAYER: Table = {
    "attn_norm": "operator_norm",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.conv": TableRow((Stored(("conv.conv.weight",), taps),)),
    "shortconv.out_proj": "conv.out_proj",
    **attention(output="out_proj"),
    "attn_q_norm": "self_attn.q_layernorm",
    "attn_k_norm": "self_attn.k_layernorm",
    "ffn_norm": "ffn_norm",
    # The second names are mlx-lm's.
    "ffn_gate": at("feed_forward.w1", "feed_forward.gate_proj"),
    "ffn_up": at("feed_forward.w3", "feed_forward.up_proj"),
    "ffn_down": at("feed_forward.w2", "feed_forward.down_proj"),
    "ffn_gate_inp": "feed_forward.gate",
    "exp_probs_b.bias": tensor("feed_forward.expert_bias", when="use_expert_bias"),
    **experts("feed_forward.experts", gate="w1", up="w3", down="w2"),
}


def _kernel(config: HFConfig) -> int:
    return config.values.size("conv_L_cache", "short_conv_kernel", 3, smallest=2)


def _dense_layers(config: HFConfig) -> int:
    if config.experts is None:
        return config.num_layers
    return config.values.size("num_dense_layers", "first_dense_layers", 2, smallest=0)


def _width(config: HFConfig) -> int:
    """Of a dense layer, as transformers' Lfm2MLP makes it."""
    values = config.values
    width = values.size("block_ff_dim", "intermediate_size", config.intermediate_size)
    if config.experts is not None or not values.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    if values.has("block_ffn_dim_multiplier"):
        width = int(values.real("block_ffn_dim_multiplier", "multiplier") * width)
    step = values.size("block_multiple_of", "intermediate_size", 256)
    return -(-width // step) * step


def _kinds(config: HFConfig) -> tuple[bool, ...]:
    """Whether each layer is a convolution; older configurations list those that are not."""
    full = config.values.values.get("full_attn_idxs")
    if config.values.has("layer_types") or not isinstance(full, list):
        return layer_kinds(config, _KINDS)
    return tuple(layer not in full for layer in range(config.num_layers))


def _keys(config: HFConfig) -> Keys:
    if config.values.flag("conv_bias"):
        raise UnsupportedError(
            f"{config.source}: conv_bias is true; GGUF's files of this class have no such bias"
        )
    kinds = _kinds(config)
    kv_heads = np.array([0 if one else config.num_kv_heads for one in kinds], np.int32)
    return {
        "attention.head_count_kv": kv_heads,
        "feed_forward_length": _width(config),
        "shortconv.l_cache": _kernel(config),
        "attention.layer_norm_epsilon": None,
        "attention.layer_norm_rms_epsilon": config.norm_eps,
    }


def _expert_keys(config: HFConfig) -> Keys:
    for key, expected in (("norm_topk_prob", True), ("routed_scaling_factor", 1.0)):
        if config.values.values.get(key, expected) != expected:
            raise UnsupportedError(
                f"{config.source}: {key} is {shown(config.values.values[key])}; in GGUF it is "
                f"always {str(expected).lower()} in this class"
            )
    return {
        **_keys(config),
        "leading_dense_block_count": _dense_layers(config),
        "expert_gating_func": 2,
    }


# Older configurations give the width by block_ff_dim alone.
_DEFAULTS: dict[str, object] = {
    "rope_theta": 1000000.0, "tie_word_embeddings": True, "intermediate_size": 12288,
    "norm_eps": 1e-5, "use_expert_bias": True,
}  # fmt: skip
FAMILIES = (
    Family(
        class_names=("Lfm2ForCausalLM",),
        architectures={"silu": "lfm2"},
        layer=_LAYER, ends=_ENDS, keys=_keys, mlx_turns=True,
        terms=Terms(epsilon="norm_eps", defaults=_DEFAULTS),
    ),
    Family(
        class_names=("Lfm2MoeForCausalLM",),
        architectures={"silu": "lfm2moe"},
        layer=_LAYER, ends=_ENDS, keys=_expert_keys, mlx_turns=True,
        terms=Terms(
            epsilon="norm_eps", defaults=_DEFAULTS,
            experts=ExpertTerms(("num_experts",)),
        ),
    ),
)  # fmt: skip
