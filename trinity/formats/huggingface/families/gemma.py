"""Gemma 1, 2, 3, EmbeddingGemma.

Norms multiply by their weight + 1, which GGUF's weights have in them.
GGUF has no output matrix of their own. Whatever ``hidden_act`` Gemma 1 names, GELU's tanh form is
meant: transformers GemmaConfig.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.blocks import attention, embedding, gated, head_norms, norm
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.families.qwen import WITHOUT_HEAD
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.stored import Module

_TANH = "gelu_pytorch_tanh"
_LOGIT_CAP = "final_logit_softcapping"
_NO_CAP = 0.0  # without a key readers of GGUF have a default of their own
_TIED = {"tie_word_embeddings": True}


def _ends(config: HFConfig) -> Iterator[Module]:
    yield embedding(config)
    yield from norm("output_norm", "model.norm", config.hidden_size, add=1)


def _gemma1_layer(config: HFConfig, index: int) -> Iterator[Module]:
    bias = config.values.flag("attention_bias")
    yield from norm("attn_norm", "input_layernorm", config.hidden_size, add=1)
    yield from attention(config, bias=bias, output_bias=bias)
    yield from norm("ffn_norm", "post_attention_layernorm", config.hidden_size, add=1)
    yield from gated(config.hidden_size, config.intermediate_size)


def _sandwich(config: HFConfig) -> Iterator[Module]:
    """Gemma 2's layer: a norm before and behind attention and feed-forward."""
    bias, hidden = config.values.flag("attention_bias"), config.hidden_size
    yield from norm("attn_norm", "input_layernorm", hidden, add=1)
    yield from attention(config, bias=bias, output_bias=bias)
    yield from norm("post_attention_norm", "post_attention_layernorm", hidden, add=1)
    yield from norm("ffn_norm", "pre_feedforward_layernorm", hidden, add=1)
    yield from gated(hidden, config.intermediate_size)
    yield from norm("post_ffw_norm", "post_feedforward_layernorm", hidden, add=1)


def _gemma2_layer(config: HFConfig, index: int) -> Iterator[Module]:
    return _sandwich(config)


def _gemma3_layer(config: HFConfig, index: int) -> Iterator[Module]:
    yield from _sandwich(config)
    yield from head_norms(config, add=1)


def _gemma1_keys(config: HFConfig) -> Keys:
    _check_causal(config)
    return {}


def _gemma2_keys(config: HFConfig) -> Keys:
    _check_causal(config)
    return {**_scale(config, layers_by_width=46), **_softcaps(config), **window_keys(config, 2)}


def _gemma3_keys(config: HFConfig) -> Keys:
    _check_causal(config)
    keys = {**_scale(config, layers_by_width=62), **window_keys(config, 6)}
    if config.values.has(_LOGIT_CAP):  # the class caps no scores, whatever its configuration says
        keys[_LOGIT_CAP] = config.values.real(_LOGIT_CAP, "final_logit_softcap")
    return keys


def _embedding_keys(config: HFConfig) -> Keys:
    if not config.values.flag("use_bidirectional_attention"):
        raise UnsupportedError(
            f"{config.source}: use_bidirectional_attention is not true; trinity reads a "
            f"{config.class_name} as EmbeddingGemma, whose tokens see all of a text"
        )
    scale = _scale(config, layers_by_width=62)
    return {"attention.causal": False, **scale, **window_keys(config, 6)}


def _softcaps(config: HFConfig) -> dict[str, object]:
    names = {"attn_logit_softcapping": "attn_logit_softcap", _LOGIT_CAP: "final_logit_softcap"}
    return {
        name: config.values.real(name, field) if config.values.has(name) else _NO_CAP
        for name, field in names.items()
    }


def _scale(config: HFConfig, layers_by_width: int) -> dict[str, object]:
    """The scale of scores, where it is not the one that GGUF's files have without a key.

    Source: llama.cpp src/models/gemma2.cpp, gemma3.cpp: 1 / sqrt(head_dim), but in the models of
    so many layers, the 27B, by the width of a head if all of them made up hidden_size.
    """
    scalar = config.values.size("query_pre_attn_scalar", "hidden_size", 256)
    by_width = config.num_layers == layers_by_width
    usual = config.hidden_size // config.num_heads if by_width else config.head_dim
    return {} if scalar == usual else {"attention.scale": 1 / math.sqrt(scalar)}


def _check_causal(config: HFConfig) -> None:
    if config.values.flag("use_bidirectional_attention"):
        raise UnsupportedError(
            f"{config.source}: use_bidirectional_attention is true; trinity reads models that write"
        )


# All of them: the configurations of published models lack most keys.
_OF_3 = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": _TANH,
    "max_position_embeddings": 131_072,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "sliding_window": 4096,
    **_TIED,
}

FAMILIES = (
    Family(
        class_names=("GemmaForCausalLM",),
        architectures={_TANH: "gemma", "gelu": "gemma"},
        layer=_gemma1_layer,
        ends=_ends,
        keys=_gemma1_keys,
        terms=Terms(defaults={"head_dim": 256, "hidden_act": _TANH, **_TIED}),
    ),
    Family(
        class_names=("Gemma2ForCausalLM",),
        architectures={_TANH: "gemma2"},
        layer=_gemma2_layer,
        ends=_ends,
        keys=_gemma2_keys,
        terms=Terms(
            windows=True,
            defaults={
                "head_dim": 256,
                "hidden_activation": _TANH,
                "sliding_window": 4096,
                "attn_logit_softcapping": 50.0,
                "final_logit_softcapping": 30.0,
                **_TIED,
            },
            activation="hidden_activation",
            window_period=2,
        ),
        window_in_keys=True,
    ),
    Family(
        class_names=("Gemma3ForCausalLM",),
        wrappers=("Gemma3ForConditionalGeneration",),
        architectures={_TANH: "gemma3"},
        layer=_gemma3_layer,
        ends=_ends,
        keys=_gemma3_keys,
        terms=Terms(
            windows=True,
            defaults=_OF_3,
            activation="hidden_activation",
            window_period=6,
        ),
        window_in_keys=True,
        mlx_head=True,
    ),
    Family(
        class_names=("Gemma3TextModel",),
        architectures={_TANH: "gemma-embedding"},
        layer=_gemma3_layer,
        ends=_ends,
        keys=_embedding_keys,
        terms=Terms(windows=True, defaults=_OF_3, activation="hidden_activation", window_period=6),
        window_in_keys=True,
        renames=WITHOUT_HEAD,
        headless=True,
    ),
)
