"""qwen2 (biases on q, k and v) and qwen3 (norms on the heads of q and k): llama's layer otherwise.

Source: llama.cpp src/models/qwen2.cpp and qwen3.cpp.
"""

from __future__ import annotations

from functools import partial

from trinity.formats.huggingface.classifier import with_classifier
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import attention, gated, head_norms, pre_norm_layer
from trinity.models.architecture import Architecture
from trinity.models.llama import layer

ARCHITECTURES = (
    Architecture(("qwen2",), layer, rope_halves=True),
    Architecture(("qwen3",), partial(layer, head_norms=True), rope_halves=True),
)

# -- In transformers' checkpoints --

# Embedders' checkpoints are the model without its head.
WITHOUT_HEAD = (
    ("layers.", "model.layers."),
    ("embed_tokens.", "model.embed_tokens."),
    ("norm.", "model.norm."),
)
WINDOW_OFF = {"use_sliding_window": False}


_LAYER2 = pre_norm_layer(attention(bias=True), gated())
_LAYER3 = pre_norm_layer(
    {**attention(bias="attention_bias", output_bias="attention_bias"), **head_norms()}, gated()
)
_QWEN2 = Family(
    classes={"Qwen2ForCausalLM": "qwen2"},
    layer=_LAYER2,
    windows=WindowTerms(max_window_layers="after"),
    defaults=WINDOW_OFF,
)
_QWEN3 = Family(
    classes={"Qwen3ForCausalLM": "qwen3"},
    layer=_LAYER3,
    renames=WITHOUT_HEAD,
    windows=WindowTerms(max_window_layers="after"),
    defaults={"head_dim": 128, **WINDOW_OFF},
)
FAMILIES = (
    _QWEN2,
    _QWEN3,
    with_classifier(_QWEN2),
    with_classifier(_QWEN3),
    Family(  # the form in which sentence-transformers saves an embedder
        classes={"Qwen3Model": "qwen3"},
        layer=_LAYER3,
        renames=WITHOUT_HEAD,
        unused=r"lm_head\..*",
        headless=True,
        windows=WindowTerms(max_window_layers="after"),
        defaults={"head_dim": 128, **WINDOW_OFF},
    ),
)
