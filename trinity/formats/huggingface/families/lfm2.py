"""LFM2: short convolutions and, in some layers, attention."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.blocks import (
    attention,
    embedding,
    experts,
    linear,
    norm,
    router,
    vector,
)
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.recurrent import convolution, layer_kinds
from trinity.formats.huggingface.stored import Module

_KINDS = {"conv": True, "full_attention": False}


def _convolves(config: HFConfig) -> tuple[bool, ...]:
    """Whether each layer is a convolution; older files list the other ones."""
    values = config.values
    listed = values.values.get("full_attn_idxs")
    if values.values.get("layer_types") is None and isinstance(listed, list):
        return tuple(layer not in listed for layer in range(config.num_layers))
    return layer_kinds(config, _KINDS)


def _kernel(config: HFConfig) -> int:
    return config.values.size("conv_L_cache", "short_conv_kernel", 3)


def _width(config: HFConfig) -> int:
    """Of the dense feed-forward. Source: transformers, Lfm2MLP."""
    values = config.values
    width = config.intermediate_size
    if values.has("block_ff_dim"):
        width = values.size("block_ff_dim", "intermediate_size")
    if config.experts is not None or not values.flag("block_auto_adjust_ff_dim", True):
        return width
    width = int(values.real("block_ffn_dim_multiplier", "multiplier", 1.0) * int(2 * width / 3))
    step = values.size("block_multiple_of", "intermediate_size", 256)
    return -(-width // step) * step


def _ends(config: HFConfig) -> Iterator[Module]:
    yield embedding(config)
    yield from norm("token_embd_norm", "model.embedding_norm", config.hidden_size)


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, source = config.hidden_size, "feed_forward"
    yield from norm("attn_norm", "operator_norm", hidden)
    if _convolves(config)[index]:
        yield from linear("shortconv.in_proj", "conv.in_proj", 3 * hidden, hidden)
        name = "shortconv.conv"
        yield from convolution("conv.conv", hidden, _kernel(config), name=name)
        yield from linear("shortconv.out_proj", "conv.out_proj", hidden, hidden)
    else:
        yield from attention(config, output="self_attn.out_proj")
        yield from norm("attn_q_norm", "self_attn.q_layernorm", config.head_dim)
        yield from norm("attn_k_norm", "self_attn.k_layernorm", config.head_dim)
    yield from norm("ffn_norm", "ffn_norm", hidden)
    if config.experts is None or index < _dense_layers(config):
        width = _width(config)
        yield from linear("ffn_gate", f"{source}.w1", width, hidden)
        yield from linear("ffn_up", f"{source}.w3", width, hidden)
        yield from linear("ffn_down", f"{source}.w2", hidden, width)
        return
    yield router(config, f"{source}.gate")
    yield from experts(config, f"{source}.experts", gate="w1", up="w3", down="w2")
    if config.values.flag("use_expert_bias", True):
        count = config.experts.count
        yield vector("exp_probs_b.bias", f"{source}.expert_bias", (count,))


def _dense_layers(config: HFConfig) -> int:
    return config.values.size("num_dense_layers", "first_dense_layers", 2, smallest=0)


def _keys(config: HFConfig) -> Keys:
    if config.values.flag("conv_bias"):
        raise UnsupportedError(
            f"{config.source}: conv_bias is true; in GGUF these convolutions have no bias"
        )
    heads = [0 if one else config.num_kv_heads for one in _convolves(config)]
    return {
        "attention.head_count_kv": np.array(heads, np.int32),
        "shortconv.l_cache": _kernel(config),
        "feed_forward_length": _width(config),
        "attention.layer_norm_rms_epsilon": config.norm_eps,
        "attention.layer_norm_epsilon": None,
    }


def _expert_keys(config: HFConfig) -> Keys:
    values = config.values
    scale = values.real("routed_scaling_factor", "expert_scale", 1.0)
    return {
        **_keys(config),
        "leading_dense_block_count": _dense_layers(config),
        "expert_gating_func": 2,
        # Absent, they mean these values.
        "expert_weights_norm": None if values.flag("norm_topk_prob", True) else False,
        "expert_weights_scale": None if scale == 1.0 else scale,
    }


_DEFAULTS: dict[str, object] = {"rope_theta": 1000000.0, "tie_word_embeddings": True}
FAMILIES = (
    Family(
        class_names=("Lfm2ForCausalLM",),
        architectures={"silu": "lfm2"},
        layer=_layer, ends=_ends, keys=_keys,
        terms=Terms(defaults={**_DEFAULTS, "intermediate_size": 12288}, epsilon="norm_eps"),
    ),
    Family(
        class_names=("Lfm2MoeForCausalLM",),
        architectures={"silu": "lfm2moe"},
        layer=_layer, ends=_ends, keys=_expert_keys,
        terms=Terms(defaults=_DEFAULTS, epsilon="norm_eps", experts=ExpertTerms(("num_experts",))),
    ),
)  # fmt: skip
