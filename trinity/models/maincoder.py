"""maincoder (Maincoder 1B): llama with norms of heads after the rotation, as in Hunyuan.

Source: llama.cpp src/models/maincoder.cpp and conversion/maincoder.py.
"""

from __future__ import annotations

from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import attention, gated, head_norms, pre_norm_layer
from trinity.models.architecture import Architecture
from trinity.models.hunyuan import layer

ARCHITECTURES = (Architecture(("maincoder",), layer, rope_halves=False),)

# -- In published checkpoints --

FAMILY = Family(
    classes={"MaincoderForCausalLM": "maincoder"},
    layer=pre_norm_layer({**attention(), **head_norms()}, gated()),
    rope_types=(),
    defaults={"rms_norm_eps": 1e-5},
)
