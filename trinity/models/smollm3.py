"""smollm3: llama, but every fourth layer does not rotate; no GGUF key says so.

GGUF permutes the rows of Q and K.
Source: llama.cpp src/models/smollm3.cpp; transformers' SmolLM3.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import LAYER
from trinity.models.operations import Operation

_PERIOD = 4  # the last layer of each period does not rotate


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    rotation = None if (index + 1) % _PERIOD == 0 else blocks.rotation_of(config)
    attention = blocks.attention(config, rotation, scale=config.attention_scale)
    return [*blocks.attention_branch(config, has, attention), *blocks.feed_forward(config, "silu")]


ARCHITECTURES = (Architecture(("smollm3",), _layer, rope_halves=False),)

# -- In transformers' checkpoints --


def _check(config: ModelConfig, values: Values) -> None:
    listed = values.values.get("no_rope_layers")
    interval = values.values.get("no_rope_layer_interval", _PERIOD)
    usual = [int((layer + 1) % _PERIOD != 0) for layer in range(config.num_layers)]
    if listed != usual if listed is not None else interval != _PERIOD:
        raise UnsupportedError(
            f"{values.source}: no_rope_layers is {shown(listed)}, no_rope_layer_interval "
            f"{shown(interval)}, which is not supported: in GGUF files of this model class every "
            "fourth layer has no RoPE, and all others have it"
        )


FAMILY = Family(
    classes={"SmolLM3ForCausalLM": "smollm3"},
    layer=LAYER,
    check=_check,
    windows=WindowTerms(),
    defaults={
        "num_key_value_heads": 4,
        "rope_theta": 2_000_000.0,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
    },
)
