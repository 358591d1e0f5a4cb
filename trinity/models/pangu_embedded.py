"""pangu-embedded (openPangu Embedded 1B and 7B): llama with biases, and rotation of halves.

Source: llama.cpp src/models/pangu-embed.cpp and conversion/pangu.py.
"""

from __future__ import annotations

from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import attention, gated, pre_norm_layer
from trinity.models import llama
from trinity.models.architecture import Architecture

ARCHITECTURES = (Architecture(("pangu-embedded",), llama.layer, rope_halves=True),)

# -- In published checkpoints --

FAMILY = Family(
    classes={"PanguEmbeddedForCausalLM": "pangu-embedded"},
    layer=pre_norm_layer(attention(bias="bias", output_bias="bias"), gated()),
    rope_types=(),
    defaults={"bias": True, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
)
