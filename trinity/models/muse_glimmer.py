"""muse-glimmer (the text of Muse Glimmer): gated attention between norms, normalized embeddings.

Three windowed layers, which rotate, precede a full one, which does not. Checkpoints have no norms
of q and k, but a factor of q after its norm; GGUF has constant weights.
Source: llama.cpp src/models/muse-glimmer.cpp; transformers' MuseGlimmer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import refuse_other, windowed_layers
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.table import Table, TableRow, at, attention, gated
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Norm, Operation

_PERIOD = 4  # the last layer of each period sees all positions
_POST_EPS = 1e-8  # of the norms after branches


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    hidden = config.hidden_size
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has, head_norms=True),
        blocks.attention_gate(config),
        *blocks.windowed_attention(config, index, _PERIOD),
        *blocks.gated_attention_output(config, "h", add=False),
        Norm("h", "post_attention_norm", "x", hidden, add=True, eps=_POST_EPS),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "silu", out="h"),
        Norm("h", "post_ffw_norm", "x", hidden, add=True, eps=_POST_EPS),
    ]


ARCHITECTURES = (
    Architecture(
        ("muse-glimmer",), _layer, rope_halves=False,
        prologue=lambda config: [Norm("x", "", "x", config.hidden_size)],
        logit_scale=lambda config: config.logit_scale,
        needs=("logit_scale", "sliding_window"),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_QK_SCALE = "qk_scale_factor"


def _table(config: ModelConfig, values: Values) -> Table:
    def some(array: NDArray[Any]) -> NDArray[Any]:
        return array.reshape(-1)[: config.head_dim]

    def constant(value: float, array: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.full_like(array, value)

    # Tensors that a checkpoint does not have are made in place of others' values.
    scales = {"q": values.real(_QK_SCALE, "attention_scale"), "k": 1.0}
    norms = {
        f"attn_{name}_norm": TableRow(
            (Stored((f"self_attn.{name}_proj.weight",), some),), change=partial(constant, scale)
        )
        for name, scale in scales.items()
    }
    return {
        "attn_norm": at("input_layernorm", add=1),
        **norms,
        **attention(bias="attention_bias", output_bias="attention_bias", permuted=True),
        "attn_gate": "self_attn.gate_proj",
        "post_attention_norm": at("post_attention_layernorm", add=1),
        "ffn_norm": at("pre_feedforward_layernorm", add=1),
        **gated(),
        "post_ffw_norm": at("post_feedforward_layernorm", add=1),
    }


def _check(config: ModelConfig, values: Values) -> None:
    refuse_other(values, {"post_norm_eps": (None, _POST_EPS)})
    if config.num_layers % _PERIOD and not values.has("layer_types"):
        raise UnsupportedError(
            f"{values.source}: num_hidden_layers is {config.num_layers} and layer_types is "
            f"missing; without it trinity reads multiples of {_PERIOD} layers"
        )
    theta, layers = config.rope_theta, config.num_layers
    bases = values.values.get("layer_rope_theta")
    if bases is None:  # transformers' default does not depend on layer_types
        bases = [theta if (layers - 1 - index) % _PERIOD else 0 for index in range(layers)]
    if bases != [theta if window else 0 for window in windowed_layers(config)]:
        given = "" if values.has("layer_rope_theta") else " (the default)"
        raise UnsupportedError(
            f"{values.source}: layer_rope_theta is {shown(bases)}{given}; trinity reads rope_theta "
            f"{theta} for windowed layers and 0 for the others"
        )


FAMILY = Family(
    wrappers={"MuseGlimmerForConditionalGeneration": "muse-glimmer"},
    layer=_table,
    check=_check,
    activation="hidden_activation",
    windows=WindowTerms(_PERIOD, gguf="layers"),
    fields={
        "logit_scale": "output_multiplier",
        "final_logit_softcap": "final_logit_softcapping",
    },
    rope_types=(),
    defaults={
        "hidden_activation": "silu",
        "num_key_value_heads": 2,
        "head_dim": 128,
        "rms_norm_eps": 1e-5,
        "sliding_window": 2048,
        "final_logit_softcapping": 20.0,
        _QK_SCALE: 3.87,
        "output_multiplier": 0.19611613513818404,
        "tie_word_embeddings": False,
    },
)
