"""qwen and qwen2 (biases on q, k and v), qwen3 (norms on the heads of q and k): llama's layer.

qwen has q, k and v in one matrix, and a feed-forward of half the width that it states.
Source: llama.cpp src/models/qwen.cpp, qwen2.cpp and qwen3.cpp; the published class of Qwen 1.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.classifier import with_classifier
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import check_even_heads, refuse_other
from trinity.formats.huggingface.table import (
    Table,
    at,
    attention,
    gated,
    head_norms,
    pre_norm_layer,
)
from trinity.formats.huggingface.values import Values
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import WITHOUT_HEAD, layer
from trinity.models.operations import Operation


def _half_width(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    half = replace(config, intermediate_size=config.intermediate_size // 2)
    return layer(half, index, has, head_norms=False)


ARCHITECTURES = (
    Architecture(("qwen",), _half_width, rope_halves=True),
    Architecture(("qwen2",), layer, rope_halves=True),
    Architecture(("qwen3",), partial(layer, head_norms=True), rope_halves=True),
)

# -- In transformers' checkpoints --

WINDOW_OFF = {"use_sliding_window": False}

_LAYER1: Table = {
    "attn_norm": "ln_1",
    "attn_qkv": at("attn.c_attn", bias=True),
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.w1",
    "ffn_gate": "mlp.w2",
    "ffn_down": "mlp.c_proj",
}


def _prepared(values: Values) -> Values:
    """Beyond ``seq_length`` tokens the class scales frequencies and queries; GGUF has no keys."""
    given = {**values.values, "num_key_value_heads": None, "head_dim": None, "rope_scaling": None}
    if values.flag("use_dynamic_ntk") or values.flag("use_logn_attn"):
        given["max_position_embeddings"] = values.size("seq_length", "context_length")
        given["rope_scaling"] = {"rope_type": "dynamic"}
    return Values(given, values.source)


def _check(config: ModelConfig, values: Values) -> None:
    check_even_heads(config, values)
    refuse_other(values, {"no_bias": (True,), "scale_attn_weights": (True,)})
    channels = values.size("kv_channels", "head_dim", config.head_dim)
    if channels != config.head_dim:
        raise UnsupportedError(
            f"{values.source}: kv_channels is {channels}; of this class trinity reads "
            f"hidden_size / num_attention_heads, {config.head_dim}"
        )


def _check_kormo(config: ModelConfig, values: Values) -> None:
    refuse_other(values, {"attention_bias": (None, False), "mlp_bias": (None, False)})


_LAYER2 = pre_norm_layer(attention(bias=True), gated())
_LAYER3 = pre_norm_layer(
    {**attention(bias="attention_bias", output_bias="attention_bias"), **head_norms()}, gated()
)
_QWEN2 = Family(
    classes={"Qwen2ForCausalLM": "qwen2"},
    wrappers={"DotsOCRForCausalLM": "qwen2"},
    layer=_LAYER2,
    windows=WindowTerms(max_window_layers="after"),
    defaults=WINDOW_OFF,
)
_QWEN3 = Family(
    classes={"Qwen3ForCausalLM": "qwen3"},
    wrappers={"StepVLForConditionalGeneration": "qwen3"},
    layer=_LAYER3,
    renames=WITHOUT_HEAD,
    windows=WindowTerms(max_window_layers="after"),
    defaults={"head_dim": 128, **WINDOW_OFF},
)
FAMILIES = (
    Family(
        classes={"QWenLMHeadModel": "qwen"},
        layer=_LAYER1,
        ends={"token_embd": "wte", "output_norm": "ln_f"},
        prepare=_prepared,
        check=_check,
        renames=(("transformer.h.", "model.layers."), ("transformer.", "")),
        rope_types=("dynamic",),
        unused=r"rotary_emb\.inv_freq|model\.layers\.\d+\.attn\.(bias|masked_bias|rotary_emb\..*)",
        defaults={
            "no_bias": True,
            "scale_attn_weights": True,
            "tie_word_embeddings": False,
            "use_dynamic_ntk": True,
            "use_logn_attn": True,
        },
        older={"rms_norm_eps": "layer_norm_epsilon", "rope_theta": "rotary_emb_base"},
    ),
    _QWEN2,
    _QWEN3,
    with_classifier(_QWEN2),
    with_classifier(_QWEN3),
    Family(  # llama with halves and without biases, which GGUF has as qwen2
        classes={"KORMoForCausalLM": "qwen2"},
        layer={
            "attn_norm": "pre_attention_layernorm",
            **attention(),
            "ffn_norm": "pre_mlp_layernorm",
            **gated(),
        },
        check=_check_kormo,
        defaults={
            "head_dim": 128,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5,
            "rope_theta": 5e5,
            "tie_word_embeddings": False,
        },
    ),
    Family(  # the form in which sentence-transformers saves an embedder
        classes={"Qwen2Model": "qwen2"},
        layer=_LAYER2,
        renames=WITHOUT_HEAD,
        unused=r"lm_head\..*",
        headless=True,
        windows=WindowTerms(max_window_layers="after"),
        defaults=WINDOW_OFF,
    ),
    Family(
        classes={"Qwen3Model": "qwen3"},
        layer=_LAYER3,
        renames=WITHOUT_HEAD,
        unused=r"lm_head\..*",
        headless=True,
        windows=WindowTerms(max_window_layers="after"),
        defaults={"head_dim": 128, **WINDOW_OFF},
    ),
)
