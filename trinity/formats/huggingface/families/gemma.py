"""Gemma 1, 2, 3, EmbeddingGemma.

Norms multiply by their weight + 1, which GGUF's weights have in them.
GGUF has no output matrix of their own. Whatever ``hidden_act`` Gemma 1 names, GELU's tanh form is
meant: transformers GemmaConfig.
"""

from __future__ import annotations

import math

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.families.qwen import WITHOUT_HEAD
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention, gated, head_norms

_TANH = "gelu_pytorch_tanh"
_LOGIT_CAP = "final_logit_softcapping"
_NO_CAP = 0.0  # without a key readers of GGUF have a default of their own
_TIED = {"tie_word_embeddings": True}


_ENDS: Table = {**EMBEDDING, "output_norm": at("model.norm", add=1)}
_LAYER1: Table = {
    "attn_norm": at("input_layernorm", add=1),
    **attention(bias="attention_bias", output_bias="attention_bias"),
    "ffn_norm": at("post_attention_layernorm", add=1),
    **gated(),
}
# A norm before and after attention and feed-forward.
_LAYER2: Table = {
    "attn_norm": at("input_layernorm", add=1),
    **attention(bias="attention_bias", output_bias="attention_bias"),
    "post_attention_norm": at("post_attention_layernorm", add=1),
    "ffn_norm": at("pre_feedforward_layernorm", add=1),
    **gated(),
    "post_ffw_norm": at("post_feedforward_layernorm", add=1),
}
_LAYER3: Table = {**_LAYER2, **head_norms(add=1)}


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
        layer=_LAYER1,
        ends=_ENDS,
        keys=_gemma1_keys,
        terms=Terms(defaults={"head_dim": 256, "hidden_act": _TANH, **_TIED}),
    ),
    Family(
        class_names=("Gemma2ForCausalLM",),
        architectures={_TANH: "gemma2"},
        layer=_LAYER2,
        ends=_ENDS,
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
        layer=_LAYER3,
        ends=_ENDS,
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
        layer=_LAYER3,
        ends=_ENDS,
        keys=_embedding_keys,
        terms=Terms(windows=True, defaults=_OF_3, activation="hidden_activation", window_period=6),
        window_in_keys=True,
        renames=WITHOUT_HEAD,
        headless=True,
    ),
)
