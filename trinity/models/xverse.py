"""xverse (XVERSE 7B, 13B and 65B): llama under another name.

Source: llama.cpp src/models/xverse.cpp and conversion/xverse.py.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import check_even_heads, refuse_other
from trinity.formats.huggingface.table import attention, gated, pre_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import llama
from trinity.models.architecture import Architecture

ARCHITECTURES = (Architecture(("xverse",), llama.layer, rope_halves=False),)

# -- In published checkpoints --


def _check(config: ModelConfig, values: Values) -> None:
    check_even_heads(config, values)
    refuse_other(values, {"num_key_value_heads": (None, config.num_heads)})


FAMILY = Family(
    classes={"XverseForCausalLM": "xverse"},
    layer=pre_norm_layer(attention(permuted=True), gated()),
    check=_check,
    rope_types=(),
    defaults={"rms_norm_eps": 1e-6, "tie_word_embeddings": False},
)
