"""StarCoder 2."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface.blocks import attention, embedding, linear, norm
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.stored import Module

_TANH = "gelu_pytorch_tanh"


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, width = config.hidden_size, config.intermediate_size
    bias = config.values.flag("use_bias")
    yield from norm("attn_norm", "input_layernorm", hidden, bias=True)
    yield from attention(config, bias=bias, output_bias=bias)
    yield from norm("ffn_norm", "post_attention_layernorm", hidden, bias=True)
    yield from linear("ffn_up", "mlp.c_fc", width, hidden, bias=bias)
    yield from linear("ffn_down", "mlp.c_proj", hidden, width, bias=bias)


def _ends(config: HFConfig) -> Iterator[Module]:
    yield embedding(config)
    yield from norm("output_norm", "model.norm", config.hidden_size, bias=True)


FAMILIES = (
    Family(
        class_names=("Starcoder2ForCausalLM",),
        architectures={_TANH: "starcoder2"},
        layer=_layer,
        ends=_ends,
        terms=Terms(
            windows=True,
            defaults={
                "hidden_act": _TANH,
                "num_key_value_heads": 2,
                "norm_epsilon": 1e-5,
                "use_bias": True,
                "tie_word_embeddings": True,
            },
            epsilon="norm_epsilon",
        ),
    ),
)
