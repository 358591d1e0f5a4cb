"""apertus (Apertus 8B and 70B): Llama's layers with norms over heads, and a feed-forward of xIELU.

The numbers of a layer's xIELU are keys in GGUF, and tensors in a checkpoint. GGUF has them as the
checkpoint does, before the softplus.
Source: llama.cpp src/models/apertus.cpp; transformers' Apertus.
"""

from __future__ import annotations

import math

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import Table, attention, head_norms
from trinity.models import blocks
from trinity.models.activation_operations import XIELU
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Linear, Operation, Product


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    size = config.intermediate_size
    return [
        *blocks.attention_branch(config, has, head_norms=True),
        Linear("h", config.hidden_size, (Product("ffn_up", "gate", size),), scales_bias=True),
        _activation(config, index),
        blocks.feed_forward_output(config),
    ]


def _activation(config: ModelConfig, index: int) -> XIELU:
    beta = config.xielu_beta[index]
    return XIELU(
        "gate",
        config.intermediate_size,
        alpha_p=_softplus(config.xielu_alpha_p[index]),
        alpha_n=beta + _softplus(config.xielu_alpha_n[index]),
        beta=beta,
        eps=config.xielu_eps[index],
    )


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


_NUMBERS = ("xielu_alpha_p", "xielu_alpha_n", "xielu_beta", "xielu_eps")
ARCHITECTURES = (Architecture(("apertus",), _layer, rope_halves=True, needs=_NUMBERS),)

# -- In transformers' checkpoints --

_LAYER: Table = {
    "attn_norm": "attention_layernorm",
    **attention(bias="attention_bias", output_bias="attention_bias"),
    **head_norms(),
    "ffn_norm": "feedforward_layernorm",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


FAMILY = Family(
    classes={"ApertusForCausalLM": "apertus"},
    activations=("xielu",),
    layer=_LAYER,
    numbers={name: f"mlp.act_fn.{name.removeprefix('xielu_')}" for name in _NUMBERS},
    defaults={
        "hidden_act": "xielu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 65536,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 12_000_000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 8192,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    },
)
