"""BitNet: b1.58 2B-4T in transformers' names, the 1bitLLM reproductions in their own."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.errors import ConfigError
from trinity.formats.huggingface.blocks import linear, norm
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.stored import Module

_ARCHITECTURES = {"relu2": "bitnet-b1.58", "silu": "bitnet"}
_ATTN_SUB_NORM = ("self_attn.attn_sub_norm", "self_attn.inner_attn_ln")
_FFN_SUB_NORM = ("mlp.ffn_sub_norm", "mlp.ffn_layernorm")


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, width = config.hidden_size, config.intermediate_size
    query, kv = config.query_size, config.kv_size
    if query != hidden:
        raise ConfigError(
            f"{config.source}: num_attention_heads {config.num_heads} x head_dim "
            f"{config.head_dim} is not hidden_size {hidden}, as it must be in {config.class_name}"
        )
    bias, mlp_bias = config.values.flag("attention_bias"), config.values.flag("mlp_bias")
    yield from norm("attn_norm", "input_layernorm", hidden)
    yield from linear("attn_q", "self_attn.q_proj", query, hidden, bias=bias)
    yield from linear("attn_k", "self_attn.k_proj", kv, hidden, bias=bias)
    yield from linear("attn_v", "self_attn.v_proj", kv, hidden, bias=bias)
    yield from norm("attn_sub_norm", _ATTN_SUB_NORM, query)
    yield from linear("attn_output", "self_attn.o_proj", hidden, query, bias=bias)
    yield from norm("ffn_norm", "post_attention_layernorm", hidden)
    yield from linear("ffn_gate", "mlp.gate_proj", width, hidden, bias=mlp_bias)
    yield from linear("ffn_up", "mlp.up_proj", width, hidden, bias=mlp_bias)
    yield from norm("ffn_sub_norm", _FFN_SUB_NORM, width)
    yield from linear("ffn_down", "mlp.down_proj", hidden, width, bias=mlp_bias)


FAMILIES = (
    Family(
        class_names=("BitNetForCausalLM",),
        architectures=_ARCHITECTURES,
        layer=_layer,
        terms=Terms(
            defaults={"hidden_act": "relu2", "rms_norm_eps": 1e-5, "rope_theta": 500_000.0},
            quantization=("bitnet",),
        ),
    ),
    Family(
        class_names=("BitnetForCausalLM",),
        architectures=_ARCHITECTURES,
        layer=_layer,
        terms=Terms(defaults={"rms_norm_eps": 1e-5}, quantization=("bitnet",)),
        ternary=True,
    ),
)
