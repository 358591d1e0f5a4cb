"""olmo (OLMo 1): norms without weights; queries, keys and values may be limited.

Source: llama.cpp src/models/olmo.cpp and conversion/olmo.py; transformers' Olmo.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads
from trinity.formats.huggingface.table import EMBEDDING, Table, attention, gated
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.activation_operations import Clamp
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "", "h", kind="layer"),
        *blocks.projections(config, has, head_norms=False),
        *_limits(config),
        *blocks.plain_attention(config),
        blocks.attention_output(config),
        blocks.norm(config, "x", "", "h", kind="layer"),
        *blocks.feed_forward(config, "silu"),
    ]


def _limits(config: ModelConfig) -> list[Operation]:
    """Limit the projections of attention, if the file has a limit."""
    limit, dim = config.projection_limit, config.head_dim
    if not limit:
        return []
    heads = {"q": config.num_heads, "k": config.num_kv_heads, "v": config.num_kv_heads}
    return [Clamp(name, count * dim, -limit, limit) for name, count in heads.items()]


ARCHITECTURES = (Architecture(("olmo",), _layer, rope_halves=False, norm="layer", output_norm=""),)

# -- In transformers' checkpoints --

_LAYER: Table = {
    **attention(bias="attention_bias", output_bias="attention_bias", permuted=True),
    **gated(),
}
_EPSILON = 1e-5  # of the class, which has no key for it


def _keys(config: ModelConfig, values: Values) -> Keys:
    check_even_heads(config, values)
    keys: dict[str, object] = {"attention.layer_norm_epsilon": _EPSILON}
    if values.values.get("clip_qkv"):
        keys["projection_limit"] = values.real("clip_qkv", "projection_limit")
    return keys


FAMILY = Family(
    classes={"OlmoForCausalLM": "olmo", "OLMoForCausalLM": "olmo"},
    layer=_LAYER,
    ends=EMBEDDING,
    keys=_keys,
    epsilon="layer_norm_epsilon",
    defaults={"layer_norm_epsilon": _EPSILON, "tie_word_embeddings": False},
)
