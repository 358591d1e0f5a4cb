"""command-r and cohere2: parallel attention and feed-forward after one LayerNorm.

Command R+ has norms over the heads of q and k, with a separate weight per head. cohere2 has three
windowed layers per full layer, and its full layers do not rotate.
Source: llama.cpp src/models/command-r.cpp and cohere2.cpp; transformers' Cohere and Cohere2.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.table import Table, attention, gated, head_norms
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Norm, Operation

_PERIOD = 4  # the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    norms: list[Operation] = []
    for name, heads in (("q", config.num_heads), ("k", config.num_kv_heads)):
        weight = f"attn_{name}_norm"
        if has(weight):
            norms.append(
                Norm(name, weight, name, config.head_dim, heads, kind="layer", per_group=True)
            )
    return _side_by_side(config, has, norms, blocks.plain_attention(config))


def _layer_of_2(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return _side_by_side(config, has, [], blocks.windowed_attention(config, index, _PERIOD))


def _side_by_side(
    config: ModelConfig, has: Has, norms: list[Operation], attention: list[Operation]
) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h", kind="layer"),
        *blocks.projections(config, has, head_norms=False),
        *norms,
        *attention,
        blocks.attention_output(config),
        *blocks.feed_forward(config, "silu"),
    ]


ARCHITECTURES = (
    Architecture(
        ("command-r",), _layer, rope_halves=False, norm="layer",
        logit_scale=lambda config: config.logit_scale, needs=("logit_scale",),
    ),
    Architecture(
        ("cohere2",), _layer_of_2, rope_halves=False, norm="layer",
        logit_scale=lambda config: config.logit_scale,
        needs=("logit_scale", "sliding_window"),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_FIELDS = {"logit_scale": "logit_scale"}
_DEFAULTS = {"logit_scale": 0.0625, "layer_norm_eps": 1e-5, "tie_word_embeddings": True}


_LAYER: Table = {
    "attn_norm": "input_layernorm",
    **attention(bias="attention_bias", output_bias="attention_bias"),
    **head_norms(when="use_qk_norm"),
    **gated(),
}


def _keys(config: ModelConfig, values: Values) -> Keys:
    return {"rope_type": "none"}


FAMILIES = (
    Family(
        classes={"CohereForCausalLM": "command-r"},
        layer=_LAYER,
        keys=_keys,
        fields=_FIELDS,
        defaults={**_DEFAULTS, "rope_theta": 500_000.0},
        epsilon="layer_norm_eps",
        # max_position_embeddings is not what Command R was trained with.
        context=("model_max_length", "max_position_embeddings"),
        rope_types=(),
    ),
    Family(
        classes={"Cohere2ForCausalLM": "cohere2"},
        layer=_LAYER,
        keys=_keys,
        windows=WindowTerms(_PERIOD, gguf="unusual layers"),
        fields=_FIELDS,
        defaults={**_DEFAULTS, "sliding_window": 4096},
        epsilon="layer_norm_eps",
        rope_types=(),
    ),
)
