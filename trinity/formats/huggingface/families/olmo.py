"""OLMo 2 and 3: norms behind attention and feed-forward only, and over all heads of Q and of K."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface.blocks import attention, gated, norm
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.stored import Module


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    bias = config.values.flag("attention_bias")
    yield from attention(config, bias=bias, output_bias=bias)
    yield from norm("attn_q_norm", "self_attn.q_norm", config.query_size)
    yield from norm("attn_k_norm", "self_attn.k_norm", config.kv_size)
    yield from norm("post_attention_norm", "post_attention_layernorm", config.hidden_size)
    yield from gated(config.hidden_size, config.intermediate_size)
    yield from norm("post_ffw_norm", "post_feedforward_layernorm", config.hidden_size)


FAMILIES = (
    Family(
        class_names=("Olmo2ForCausalLM",),
        architectures={"silu": "olmo2"},
        layer=_layer,
        terms=Terms(defaults={"rms_norm_eps": 1e-5}),
    ),
    Family(
        class_names=("Olmo3ForCausalLM",),
        architectures={"silu": "olmo2"},
        layer=_layer,
        keys=window_keys,
        terms=Terms(
            windows=True,
            defaults={"rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "sliding_window": 4096},
            window_period=4,
        ),
        window_in_keys=True,
    ),
)
