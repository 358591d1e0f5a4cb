"""ernie4_5 (ERNIE 4.5 0.3B): llama; checkpoints also rotate neighbouring dimensions.

Source: llama.cpp src/models/ernie4-5.cpp; transformers' Ernie4_5.
"""

from __future__ import annotations

from trinity.formats.huggingface.config import Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import attention, gated, pre_norm_layer
from trinity.models.architecture import Architecture
from trinity.models.llama import layer

ARCHITECTURES = (Architecture(("ernie4_5",), layer, rope_halves=False),)

# -- In transformers' checkpoints --

_LAYER = pre_norm_layer(attention(), gated())

FAMILIES = (
    Family(
        class_names=("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"),
        architectures={"silu": "ernie4_5"},
        layer=_LAYER,
        terms=Terms(
            defaults={
                "head_dim": 128,
                "num_key_value_heads": 2,
                "rms_norm_eps": 1e-5,
                "rope_theta": 500_000.0,
                "tie_word_embeddings": True,
            },
        ),
        renames=(("ernie.", "model."),),
    ),
)
