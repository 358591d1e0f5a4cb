"""starcoder2: norms with a mean, biases everywhere, GELU without a gate.

Source: llama.cpp src/models/starcoder2.cpp; transformers' Starcoder2.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    attention = blocks.attention(
        config, blocks.rotation_of(config), window=config.window_of(index, 0)
    )
    return [
        *blocks.attention_branch(config, has, attention, kind="layer"),
        *blocks.feed_forward(config, "gelu", form="up"),
    ]


ARCHITECTURES = (Architecture(("starcoder2",), _layer, rope_halves=True, norm="layer"),)

# -- In transformers' checkpoints --

_TANH = "gelu_pytorch_tanh"


_LAYER: Table = {
    "attn_norm": at("input_layernorm", bias=True),
    **attention(bias="use_bias", output_bias="use_bias"),
    "ffn_norm": at("post_attention_layernorm", bias=True),
    "ffn_up": at("mlp.c_fc", bias="use_bias"),
    "ffn_down": at("mlp.c_proj", bias="use_bias"),
}
_ENDS: Table = {**EMBEDDING, "output_norm": at("model.norm", bias=True)}

FAMILY = Family(
    classes={"Starcoder2ForCausalLM": "starcoder2"},
    activations=(_TANH,),
    layer=_LAYER,
    ends=_ENDS,
    windows=WindowTerms(),
    defaults={
        "hidden_act": _TANH,
        "num_key_value_heads": 2,
        "norm_epsilon": 1e-5,
        "use_bias": True,
        "tie_word_embeddings": True,
    },
    epsilon="norm_epsilon",
)
