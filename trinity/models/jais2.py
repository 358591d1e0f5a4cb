"""jais2 (Jais 2): norms that subtract the mean, biases, and squared ReLU without a gate.

Source: llama.cpp src/models/jais2.cpp and conversion/jais.py; transformers' Jais2.
"""

from __future__ import annotations

from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention
from trinity.models.architecture import Architecture
from trinity.models.nemotron import layer

ARCHITECTURES = (Architecture(("jais2",), layer, rope_halves=True, norm="layer"),)

# -- In transformers' checkpoints --

_LAYER: Table = {
    "attn_norm": at("input_layernorm", bias=True),
    **attention(bias="attention_bias", output_bias="attention_bias"),
    "ffn_norm": at("post_attention_layernorm", bias=True),
    "ffn_up": at("mlp.up_proj", bias="mlp_bias"),
    "ffn_down": at("mlp.down_proj", bias="mlp_bias"),
}

FAMILY = Family(
    classes={"Jais2ForCausalLM": "jais2"},
    activations=("relu2",),
    layer=_LAYER,
    ends={**EMBEDDING, "output_norm": at("model.norm", bias=True)},
    epsilon="layer_norm_eps",
    rope_types=("linear",),
    defaults={
        "attention_bias": True,
        "hidden_act": "relu2",
        "layer_norm_eps": 1e-5,
        "mlp_bias": True,
        "tie_word_embeddings": False,
    },
)
