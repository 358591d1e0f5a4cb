"""exaone4 (EXAONE 4, the text of 4.5): norms after the branches, and over each head of q and k.

The large model has three windowed layers per full layer, and its full layers do not rotate.
Source: transformers' Exaone4; llama.cpp src/models/exaone4.cpp, which uses windows only in models
of 64 layers.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import attention, gated, head_norms, post_norm_layer
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_PERIOD = 4  # the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    attention = [
        *blocks.projections(config, has, "x", head_norms=True),
        *blocks.windowed_attention(config, index, _PERIOD),
    ]
    return blocks.post_norm_layer(config, attention)


ARCHITECTURES = (Architecture(("exaone4",), _layer, rope_halves=True),)

# -- In transformers' checkpoints --

_LAYER = post_norm_layer({**attention(), **head_norms()}, gated())

FAMILY = Family(
    classes={"Exaone4ForCausalLM": "exaone4"},
    wrappers={"Exaone4_5_ForConditionalGeneration": "exaone4"},
    layer=_LAYER,
    unused=r"mtp\..*",
    windows=WindowTerms(_PERIOD, gguf="layers"),
    defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096},
)
