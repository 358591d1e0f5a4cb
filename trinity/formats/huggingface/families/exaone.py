"""EXAONE 4: norms behind attention and feed-forward only, and of each head of Q and K."""

from __future__ import annotations

from trinity.formats.huggingface.config import Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.table import Table, attention, gated, head_norms

_LAYER: Table = {
    **attention(),
    **head_norms(),
    "post_attention_norm": "post_attention_layernorm",
    **gated(),
    "post_ffw_norm": "post_feedforward_layernorm",
}

FAMILIES = (
    Family(
        class_names=("Exaone4ForCausalLM",),
        architectures={"silu": "exaone4"},
        layer=_LAYER,
        keys=window_keys,
        terms=Terms(
            windows=True,
            defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096},
            window_period=4,
        ),
        window_in_keys=True,
    ),
)
