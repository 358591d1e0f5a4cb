"""gemma, gemma2, gemma3 (text), gemma-embedding: GELU, embeddings times the root of their width.

From Gemma 2 on, each branch has a norm before and after it, and some layers are windowed. gemma2
caps scores and logits. gemma3's windowed layers have their own rotation table. gemma-embedding is
gemma3 as an encoder, whose windows reach to both sides.

Gemma's norms multiply by their weight + 1; GGUF's weights include the 1. GGUF has no output matrix.
For every ``hidden_act`` of Gemma 1, the tanh form of GELU is used, as in transformers' GemmaConfig.
Source: llama.cpp src/models/gemma.cpp, gemma2.cpp, gemma3.cpp; transformers' Gemma, Gemma2, Gemma3.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import WindowTerms, class_name_of
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention, gated, head_norms
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import WITHOUT_HEAD
from trinity.models.operations import Operation

# The last layer of each period sees all positions.
_PERIOD_OF_2, _PERIOD_OF_3 = 2, 6
_LAYERS_OF_2_27B, _LAYERS_OF_3_27B = 46, 62
# Where the file says nothing.
_WINDOW_OF_2, _SCORE_CAP_OF_2, _LOGIT_CAP_OF_2 = 4096, 50.0, 30.0
_WINDOWED_THETA_OF_3 = 10000.0


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [*blocks.attention_branch(config, has), *blocks.feed_forward(config, "gelu")]


def _layer_of_2(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    window = config.window_of(index, _PERIOD_OF_2)
    attention = blocks.attention(
        config,
        blocks.rotation_of(config, window),
        window=window,
        scale=_scale(config, _LAYERS_OF_2_27B),
        softcap=_default(config.attn_logit_softcap, _SCORE_CAP_OF_2),
    )
    return _layer_of(config, [*blocks.projections(config, has), *attention])


def _layer_of_3(
    config: ModelConfig, index: int, has: Has, *, encodes: bool = False
) -> list[Operation]:
    window = config.window_of(index, _PERIOD_OF_3)
    rotation = blocks.unscaled_in_windows(config, window, _WINDOWED_THETA_OF_3)
    attention = blocks.attention(
        config, rotation, window=0 if encodes else window, both_ways=encodes,
        reach=window // 2 if encodes and window else None, scale=_scale(config, _LAYERS_OF_3_27B),
    )  # fmt: skip
    return _layer_of(config, [*blocks.projections(config, has, head_norms=True), *attention])


def _layer_of(config: ModelConfig, attention: list[Operation]) -> list[Operation]:
    return blocks.between_norms(config, attention, blocks.feed_forward(config, "gelu", out="h"))


def _default(value: float | None, default: float) -> float:
    return default if value is None else value


def _scale(config: ModelConfig, layers_of_27b: int) -> float:
    """Return the scale of scores; in the 27B models it does not follow from the heads' width."""
    if config.attention_scale:
        return config.attention_scale
    if config.num_layers == layers_of_27b:
        return 1 / math.sqrt(config.hidden_size // config.num_heads)
    return 1 / math.sqrt(config.head_dim)


def _embedding_scale(config: ModelConfig) -> float:
    return math.sqrt(config.hidden_size)


ARCHITECTURES = (
    Architecture(("gemma",), _layer, rope_halves=True, embedding_scale=_embedding_scale),
    Architecture(
        ("gemma2",), _layer_of_2, rope_halves=True, embedding_scale=_embedding_scale,
        logit_softcap=lambda config: _default(config.final_logit_softcap, _LOGIT_CAP_OF_2),
        window=_WINDOW_OF_2, needs=("sliding_window",),
    ),
    Architecture(
        ("gemma3",), _layer_of_3, rope_halves=True, embedding_scale=_embedding_scale,
        images_both_ways="all",
    ),
    Architecture(
        ("gemma-embedding",), partial(_layer_of_3, encodes=True), rope_halves=True,
        embedding_scale=_embedding_scale, encodes=True,
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

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


def _gemma1_check(config: ModelConfig, values: Values) -> None:
    _check_causal(values)


def _gemma2_keys(config: ModelConfig, values: Values) -> Keys:
    _check_causal(values)
    scale = _score_scale(config, values, layers_by_width=_LAYERS_OF_2_27B)
    return {**scale, **_softcaps(values)}


def _gemma3_keys(config: ModelConfig, values: Values) -> Keys:
    _check_causal(values)
    keys = _score_scale(config, values, layers_by_width=_LAYERS_OF_3_27B)
    if values.has(_LOGIT_CAP):  # the class caps no scores, whatever its configuration says
        keys["final_logit_softcap"] = values.real(_LOGIT_CAP, "final_logit_softcap")
    return keys


def _embedding_keys(config: ModelConfig, values: Values) -> Keys:
    if not values.flag("use_bidirectional_attention"):
        raise UnsupportedError(
            f"{values.source}: use_bidirectional_attention is not true; trinity reads a "
            f"{class_name_of(values)} as EmbeddingGemma, whose tokens see all of a text"
        )
    if values.values.get("sliding_window") == 0:
        raise UnsupportedError(
            f"{values.source}: sliding_window is 0, with which a token would see only itself; the "
            "published models have 512"
        )
    scale = _score_scale(config, values, layers_by_width=_LAYERS_OF_3_27B)
    return {"attention.causal": False, **scale}


def _softcaps(values: Values) -> dict[str, object]:
    names = {"attn_logit_softcap": "attn_logit_softcapping", "final_logit_softcap": _LOGIT_CAP}
    return {
        field: values.real(name, field) if values.has(name) else _NO_CAP
        for field, name in names.items()
    }


def _score_scale(config: ModelConfig, values: Values, layers_by_width: int) -> dict[str, object]:
    """The scale of scores, where it is not the one that GGUF's files have without a key.

    Source: llama.cpp src/models/gemma2.cpp, gemma3.cpp: 1 / sqrt(head_dim), but in models with
    ``layers_by_width`` layers (the 27B) hidden_size / num_heads takes the place of head_dim.
    """
    scalar = values.size("query_pre_attn_scalar", "hidden_size", 256)
    by_width = config.num_layers == layers_by_width
    usual = config.hidden_size // config.num_heads if by_width else config.head_dim
    return {} if scalar == usual else {"attention_scale": 1 / math.sqrt(scalar)}


def _check_causal(values: Values) -> None:
    if values.flag("use_bidirectional_attention"):
        raise UnsupportedError(
            f"{values.source}: use_bidirectional_attention is true; trinity reads generative models"
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
    "rope_local_base_freq": _WINDOWED_THETA_OF_3,
    "sliding_window": 4096,
    **_TIED,
}
_FAMILY3 = Family(
    classes={"Gemma3ForCausalLM": "gemma3"},
    wrappers={"Gemma3ForConditionalGeneration": "gemma3"},
    activations=(_TANH,),
    layer=_LAYER3,
    ends=_ENDS,
    keys=_gemma3_keys,
    windows=WindowTerms(_PERIOD_OF_3, gguf="unusual layers"),
    defaults=_OF_3,
    activation="hidden_activation",
    mlx_head=True,
)
FAMILIES = (
    Family(
        classes={"GemmaForCausalLM": "gemma"},
        activations=(_TANH, "gelu"),
        layer=_LAYER1,
        ends=_ENDS,
        check=_gemma1_check,
        defaults={"head_dim": 256, "hidden_act": _TANH, **_TIED},
    ),
    Family(
        classes={"Gemma2ForCausalLM": "gemma2"},
        activations=(_TANH,),
        layer=_LAYER2,
        ends=_ENDS,
        keys=_gemma2_keys,
        windows=WindowTerms(_PERIOD_OF_2, gguf="unusual layers"),
        defaults={
            "head_dim": 256,
            "hidden_activation": _TANH,
            "sliding_window": _WINDOW_OF_2,
            "attn_logit_softcapping": _SCORE_CAP_OF_2,
            _LOGIT_CAP: _LOGIT_CAP_OF_2,
            **_TIED,
        },
        activation="hidden_activation",
    ),
    _FAMILY3,
    replace(
        _FAMILY3,
        classes={"Gemma3TextModel": "gemma-embedding"},
        wrappers={},
        activations=(_TANH,),
        keys=_embedding_keys,
        renames=WITHOUT_HEAD,
        headless=True,
        mlx_head=False,
    ),
)
