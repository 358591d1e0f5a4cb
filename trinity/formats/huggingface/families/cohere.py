"""Command R, R+ and R7B: attention and feed-forward beside each other behind one norm."""

from __future__ import annotations

from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.table import Table, attention, gated, head_norms

_DEFAULTS = {"logit_scale": 0.0625, "layer_norm_eps": 1e-5, "tie_word_embeddings": True}


_LAYER: Table = {
    "attn_norm": "input_layernorm",
    **attention(bias="attention_bias", output_bias="attention_bias"),
    **head_norms(when="use_qk_norm"),
    **gated(),
}


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
        layer=_LAYER,
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
        layer=_LAYER,
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
