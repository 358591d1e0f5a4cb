"""Qwen 2's and 3's mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.blocks import (
    attention,
    experts,
    gated,
    head_norms,
    norm,
    router,
    vector,
)
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.families.qwen import WINDOW_OFF
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Module
from trinity.formats.huggingface.values import shown

_SHARED = "shared_expert_intermediate_size"


def check_routing(config: HFConfig, *, normalizes: bool) -> None:
    """Raises UnsupportedError for routing that GGUF, which has no key for it, does not mean."""
    dense, step = (config.values.values.get(k) for k in ("mlp_only_layers", "decoder_sparse_step"))
    if dense or step not in (None, 1):
        raise UnsupportedError(
            f"{config.source}: mlp_only_layers is {shown(dense)} and decoder_sparse_step "
            f"{shown(step)}; in GGUF every layer of this class has experts"
        )
    if config.values.flag("norm_topk_prob") != normalizes:
        raise UnsupportedError(
            f"{config.source}: norm_topk_prob is {str(not normalizes).lower()}; in GGUF the "
            f"weights of this class's experts {'always' if normalizes else 'never'} add up to 1"
        )


def _qwen2_layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden = config.hidden_size
    shared = config.values.size(_SHARED, "shared_intermediate_size")
    yield from norm("attn_norm", "input_layernorm", hidden)
    yield from attention(config, bias=config.values.flag("qkv_bias"))
    yield from norm("ffn_norm", "post_attention_layernorm", hidden)
    yield router(config, "mlp.gate")
    yield from experts(config, "mlp.experts")
    yield vector("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", (1, hidden))
    yield from gated(hidden, shared, source="mlp.shared_expert", suffix="_shexp")


def _qwen2_keys(config: HFConfig) -> Keys:
    check_routing(config, normalizes=False)
    shared = config.values.size(_SHARED, "shared_intermediate_size")
    return {"expert_shared_feed_forward_length": shared}


def _qwen3_layer(config: HFConfig, index: int) -> Iterator[Module]:
    bias = config.values.flag("attention_bias")
    yield from norm("attn_norm", "input_layernorm", config.hidden_size)
    yield from attention(config, bias=bias, output_bias=bias)
    yield from head_norms(config)
    yield from norm("ffn_norm", "post_attention_layernorm", config.hidden_size)
    yield router(config, "mlp.gate")
    yield from experts(config, "mlp.experts")


def _qwen3_keys(config: HFConfig) -> Keys:
    check_routing(config, normalizes=True)
    return {}


_EXPERTS = ExpertTerms(("num_experts", "num_local_experts"))
FAMILIES = (
    Family(
        class_names=("Qwen2MoeForCausalLM",),
        architectures={"silu": "qwen2moe"},
        layer=_qwen2_layer,
        keys=_qwen2_keys,
        terms=Terms(
            windows=True,
            window_period=2,
            max_window_layers="before",
            defaults={"qkv_bias": True, **WINDOW_OFF},
            experts=_EXPERTS,
        ),
    ),
    Family(
        class_names=("Qwen3MoeForCausalLM",),
        architectures={"silu": "qwen3moe"},
        layer=_qwen3_layer,
        keys=_qwen3_keys,
        terms=Terms(windows=True, defaults=WINDOW_OFF, experts=_EXPERTS),
    ),
)
