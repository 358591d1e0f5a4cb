"""LFM 2: short convolutions beside attention, dense and with experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.blocks import (
    embedding,
    experts,
    experts_of,
    linear,
    norm,
    router,
    vector,
)
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.recurrent import layer_kinds
from trinity.formats.huggingface.stored import Module, Stored
from trinity.formats.huggingface.values import shown

_KINDS = {"conv": True, "full_attention": False}


def _ends(config: HFConfig) -> Iterator[Module]:
    yield embedding(config)
    yield from norm("token_embd_norm", "model.embedding_norm", config.hidden_size)


def _taps(array: NDArray[Any]) -> NDArray[Any]:
    return array[:, 0]


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


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden = config.hidden_size
    yield from norm("attn_norm", "operator_norm", hidden)
    if _kinds(config)[index]:
        bias = config.values.flag("conv_bias")
        if bias:
            raise UnsupportedError(
                f"{config.source}: conv_bias is true; GGUF's files of this class have no such bias"
            )
        yield from linear("shortconv.in_proj", "conv.in_proj", 3 * hidden, hidden)
        kernel = _kernel(config)
        form = Stored(("conv.conv.weight",), (hidden, 1, kernel), _taps)
        yield Module("shortconv.conv.weight", (hidden, kernel), (form,), "precise")
        yield from linear("shortconv.out_proj", "conv.out_proj", hidden, hidden)
    else:
        for name, part, outputs in (
            ("attn_q", "q_proj", config.query_size), ("attn_k", "k_proj", config.kv_size),
            ("attn_v", "v_proj", config.kv_size),
        ):  # fmt: skip
            yield from linear(name, f"self_attn.{part}", outputs, hidden)
        yield from linear("attn_output", "self_attn.out_proj", hidden, config.query_size)
        yield from norm("attn_q_norm", "self_attn.q_layernorm", config.head_dim)
        yield from norm("attn_k_norm", "self_attn.k_layernorm", config.head_dim)
    yield from norm("ffn_norm", "ffn_norm", hidden)
    if index < _dense_layers(config):
        width = _width(config)
        for name, part, shape in (
            ("gate", "w1", (width, hidden)), ("up", "w3", (width, hidden)),
            ("down", "w2", (hidden, width)),
        ):  # fmt: skip
            sources = (f"feed_forward.{one}.weight" for one in (part, f"{name}_proj"))  # mlx-lm's
            forms = tuple(Stored((source,), shape) for source in sources)
            yield Module(f"ffn_{name}.weight", shape, forms, "linear")
        return
    yield router(config, "feed_forward.gate")
    if config.values.flag("use_expert_bias", True):
        yield vector("exp_probs_b.bias", "feed_forward.expert_bias", experts_of(config)[:1])
    yield from experts(config, "feed_forward.experts", gate="w1", up="w3", down="w2")


def _keys(config: HFConfig) -> Keys:
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
    "norm_eps": 1e-5,
}  # fmt: skip
FAMILIES = (
    Family(
        class_names=("Lfm2ForCausalLM",),
        architectures={"silu": "lfm2"},
        layer=_layer, ends=_ends, keys=_keys, mlx_turns=True,
        terms=Terms(epsilon="norm_eps", defaults=_DEFAULTS),
    ),
    Family(
        class_names=("Lfm2MoeForCausalLM",),
        architectures={"silu": "lfm2moe"},
        layer=_layer, ends=_ends, keys=_expert_keys, mlx_turns=True,
        terms=Terms(
            epsilon="norm_eps", defaults=_DEFAULTS,
            experts=ExpertTerms(("num_experts",)),
        ),
    ),
)  # fmt: skip
