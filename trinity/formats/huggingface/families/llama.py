"""Llama, and Mistral up to 0.3. GGUF has the rows of Q and K permuted in both."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface.blocks import attention, gated, norm
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.stored import Module


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    bias = config.values.flag("attention_bias")
    yield from norm("attn_norm", "input_layernorm", config.hidden_size)
    yield from attention(config, bias=bias, output_bias=bias, permuted=True)
    yield from norm("ffn_norm", "post_attention_layernorm", config.hidden_size)
    mlp_bias = config.values.flag("mlp_bias")
    yield from gated(config.hidden_size, config.intermediate_size, bias=mlp_bias)


FAMILIES = (
    Family(
        class_names=("LlamaForCausalLM",),
        architectures={"silu": "llama"},
        layer=_layer,
        terms=Terms(quantization=("bitnet",)),
    ),
    Family(
        class_names=("MistralForCausalLM",),
        architectures={"silu": "llama"},
        layer=_layer,
        terms=Terms(windows=True, defaults={"sliding_window": 4096}, quantization=("bitnet",)),
    ),
)
