"""arcee (AFM 4.5B): llama's attention, and a feed-forward without a gate: squared ReLU.

The class may have biases, which llama.cpp does not support. GGUF permutes the rows of Q and K.
Source: llama.cpp src/models/arcee.cpp; transformers' Arcee.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import attention, pre_norm_layer
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import attention_branch
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [*attention_branch(config, index, has), *blocks.feed_forward(config, "relu2", form="up")]


ARCHITECTURES = (Architecture(("arcee",), _layer, rope_halves=False),)

# -- In transformers' checkpoints --

_LAYER = pre_norm_layer(
    attention(permuted=True), {"ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
)

FAMILY = Family(
    classes={"ArceeForCausalLM": "arcee"},
    activations=("relu2",),
    layer=_LAYER,
    defaults={"hidden_act": "relu2", "rms_norm_eps": 1e-5},
)
