"""orion (Orion 14B): llama with norms that subtract the mean, and rotation of halves of heads.

Source: llama.cpp src/models/orion.cpp and conversion/orion.py; the published class.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention, gated
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *blocks.attention_branch(config, has, kind="layer"),
        *blocks.feed_forward(config, "silu"),
    ]


ARCHITECTURES = (Architecture(("orion",), _layer, rope_halves=True, norm="layer"),)

# -- In published checkpoints --

_LAYER: Table = {
    "attn_norm": at("input_layernorm", bias=True),
    **attention(),
    "ffn_norm": at("post_attention_layernorm", bias=True),
    **gated(),
}


def _keys(config: ModelConfig, values: Values) -> Keys:
    """GGUF has the epsilon under the key of LayerNorm; config.json calls it rms_norm_eps."""
    check_even_heads(config, values)
    return {
        "attention.layer_norm_rms_epsilon": None,
        "attention.layer_norm_epsilon": config.rms_norm_eps,
    }


FAMILY = Family(
    classes={"OrionForCausalLM": "orion"},
    layer=_LAYER,
    ends={**EMBEDDING, "output_norm": at("model.norm", bias=True)},
    keys=_keys,
    context=("max_sequence_length", "max_position_embeddings"),
    rope_types=("linear",),
    defaults={"rms_norm_eps": 1e-5, "tie_word_embeddings": False},
)
