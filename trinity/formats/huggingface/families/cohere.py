"""Command R, R+ and R7B: attention and feed-forward beside each other behind one norm."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface.blocks import attention, gated, norm, vector
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.stored import Module

_DEFAULTS = {"logit_scale": 0.0625, "layer_norm_eps": 1e-5, "tie_word_embeddings": True}


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    bias = config.values.flag("attention_bias")
    yield from norm("attn_norm", "input_layernorm", config.hidden_size)
    yield from attention(config, bias=bias, output_bias=bias)
    if config.values.flag("use_qk_norm"):
        for name, heads in (("q", config.num_heads), ("k", config.num_kv_heads)):
            source = f"self_attn.{name}_norm.weight"
            yield vector(f"attn_{name}_norm.weight", source, (heads, config.head_dim))
    yield from gated(config.hidden_size, config.intermediate_size)


def _keys(config: HFConfig) -> Keys:
    return {
        "logit_scale": config.values.real("logit_scale", "logit_scale"),
        "rope.scaling.type": "none",
        **window_keys(config, 4),
    }


FAMILIES = (
    Family(
        class_names=("CohereForCausalLM",),
        architectures={"silu": "command-r"},
        layer=_layer,
        keys=_keys,
        terms=Terms(
            defaults={**_DEFAULTS, "rope_theta": 500_000.0},
            epsilon="layer_norm_eps",
            # max_position_embeddings is not what Command R was trained with.
            context=("model_max_length", "max_position_embeddings"),
            rope_types=(),
        ),
    ),
    Family(
        class_names=("Cohere2ForCausalLM",),
        architectures={"silu": "cohere2"},
        layer=_layer,
        keys=_keys,
        terms=Terms(
            windows=True,
            defaults={**_DEFAULTS, "sliding_window": 4096},
            epsilon="layer_norm_eps",
            window_period=4,
            rope_types=(),
        ),
        window_in_keys=True,
    ),
)
