"""nemotron (Nemotron 4, Minitron, Nemotron Mini): LayerNorm, and squared ReLU without a gate.

A part of each head rotates. Checkpoints have the weights of norms without their 1.
Source: llama.cpp src/models/nemotron.cpp and conversion/nemotron.py; transformers' Nemotron.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import check_even_heads
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    """A layer of norms that subtract the mean, and a feed-forward without a gate."""
    attention = blocks.plain_attention(config)
    return [
        *blocks.attention_branch(config, has, attention, kind="layer"),
        *blocks.feed_forward(config, "relu2", form="up"),
    ]


ARCHITECTURES = (Architecture(("nemotron",), layer, rope_halves=True, norm="layer"),)

# -- In transformers' checkpoints --

_LAYER: Table = {
    "attn_norm": at("input_layernorm", add=1.0, bias=True),
    **attention(bias="attention_bias", output_bias="attention_bias"),
    "ffn_norm": at("post_attention_layernorm", add=1.0, bias=True),
    "ffn_up": at("mlp.up_proj", bias="mlp_bias"),
    "ffn_down": at("mlp.down_proj", bias="mlp_bias"),
}

FAMILY = Family(
    classes={"NemotronForCausalLM": "nemotron"},
    activations=("relu2",),
    layer=_LAYER,
    ends={**EMBEDDING, "output_norm": at("model.norm", add=1.0, bias=True)},
    check=check_even_heads,
    epsilon="norm_eps",
    partial_rope=True,
    rope_types=("linear",),
    defaults={
        "hidden_act": "relu2",
        "norm_eps": 1e-5,
        "partial_rotary_factor": 0.5,
        "tie_word_embeddings": False,
    },
)
