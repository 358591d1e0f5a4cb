"""Qwen 2, 2.5 and 3."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface.blocks import attention, gated, head_norms, norm
from trinity.formats.huggingface.classifier import with_classifier
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.stored import Module

# Of an embedder's checkpoint, which is the model without its head.
WITHOUT_HEAD = (
    ("layers.", "model.layers."),
    ("embed_tokens.", "model.embed_tokens."),
    ("norm.", "model.norm."),
)
WINDOW_OFF = {"use_sliding_window": False}


def _qwen2_layer(config: HFConfig, index: int) -> Iterator[Module]:
    yield from norm("attn_norm", "input_layernorm", config.hidden_size)
    yield from attention(config, bias=True)
    yield from norm("ffn_norm", "post_attention_layernorm", config.hidden_size)
    yield from gated(config.hidden_size, config.intermediate_size)


def _qwen3_layer(config: HFConfig, index: int) -> Iterator[Module]:
    bias = config.values.flag("attention_bias")
    yield from norm("attn_norm", "input_layernorm", config.hidden_size)
    yield from attention(config, bias=bias, output_bias=bias)
    yield from head_norms(config)
    yield from norm("ffn_norm", "post_attention_layernorm", config.hidden_size)
    yield from gated(config.hidden_size, config.intermediate_size)


_QWEN2 = Family(
    class_names=("Qwen2ForCausalLM",),
    architectures={"silu": "qwen2"},
    layer=_qwen2_layer,
    terms=Terms(windows=True, max_window_layers="after", defaults=WINDOW_OFF),
)
_QWEN3 = Family(
    class_names=("Qwen3ForCausalLM",),
    architectures={"silu": "qwen3"},
    layer=_qwen3_layer,
    renames=WITHOUT_HEAD,
    terms=Terms(windows=True, max_window_layers="after", defaults={"head_dim": 128, **WINDOW_OFF}),
)
FAMILIES = (
    _QWEN2,
    _QWEN3,
    with_classifier(_QWEN2),
    with_classifier(_QWEN3),
    Family(  # as sentence-transformers saves an embedder that it trained
        class_names=("Qwen3Model",),
        architectures={"silu": "qwen3"},
        layer=_qwen3_layer,
        renames=WITHOUT_HEAD,
        unused=lambda config: r"lm_head\..*",
        headless=True,
        terms=Terms(
            windows=True, max_window_layers="after", defaults={"head_dim": 128, **WINDOW_OFF}
        ),
    ),
)
