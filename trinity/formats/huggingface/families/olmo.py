"""OLMo 2 and 3: norms behind attention and feed-forward only, and over all heads of Q and of K."""

from __future__ import annotations

from trinity.formats.huggingface.config import Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.table import Table, attention, gated, head_norms

_LAYER: Table = {
    **attention(bias="attention_bias", output_bias="attention_bias"),
    **head_norms(),
    "post_attention_norm": "post_attention_layernorm",
    **gated(),
    "post_ffw_norm": "post_feedforward_layernorm",
}

FAMILIES = (
    Family(
        class_names=("Olmo2ForCausalLM",),
        architectures={"silu": "olmo2"},
        layer=_LAYER,
        terms=Terms(defaults={"rms_norm_eps": 1e-5}),
    ),
    Family(
        class_names=("Olmo3ForCausalLM",),
        architectures={"silu": "olmo2"},
        layer=_LAYER,
        keys=window_keys,
        terms=Terms(
            windows=True,
            defaults={"rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "sliding_window": 4096},
            window_period=4,
        ),
        window_in_keys=True,
    ),
)
