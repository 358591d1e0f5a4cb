"""olmo2 (OLMo 2 and 3): norms after the branches only, and over the whole of q and of k.

OLMo 3 has three windowed layers per full layer; YaRN applies to full layers only.
Source: llama.cpp src/models/olmo2.cpp; transformers' Olmo2 and Olmo3.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.rope import rope_parameters
from trinity.formats.huggingface.table import attention, gated, head_norms, post_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Norm, Operation

_PERIOD = 4  # the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    window = config.window_of(index, _PERIOD)
    rotation = blocks.unscaled_in_windows(config, window)
    attention = [
        *blocks.projections(config, has, "x", head_norms=False),
        Norm("q", "attn_q_norm", "q", config.num_heads * config.head_dim),
        Norm("k", "attn_k_norm", "k", config.num_kv_heads * config.head_dim),
        *blocks.attention(config, rotation, window=window),
    ]
    return blocks.post_norm_layer(config, attention)


ARCHITECTURES = (Architecture(("olmo2",), _layer, rope_halves=True),)

# -- In transformers' checkpoints --

_LAYER = post_norm_layer(
    {**attention(bias="attention_bias", output_bias="attention_bias"), **head_norms()}, gated()
)

_THETA = 500_000.0


def _check(config: ModelConfig, values: Values) -> None:
    parameters = rope_parameters(values)
    by_kind = parameters.has("full_attention") or parameters.has("sliding_attention")
    if not by_kind and config.rope_theta != _THETA:
        raise UnsupportedError(
            f"{values.source}: rope_theta is {config.rope_theta:g}; in transformers only layers "
            f"without a window have it, others {_THETA:g}, which GGUF cannot express for this class"
        )


FAMILIES = (
    Family(classes={"Olmo2ForCausalLM": "olmo2"}, layer=_LAYER, defaults={"rms_norm_eps": 1e-5}),
    Family(
        classes={"Olmo3ForCausalLM": "olmo2"},
        layer=_LAYER,
        check=_check,
        windows=WindowTerms(_PERIOD, gguf="layers"),
        defaults={"rms_norm_eps": 1e-5, "rope_theta": _THETA, "sliding_window": 4096},
    ),
)
