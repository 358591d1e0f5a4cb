"""qwen2vl, qwen3vl and qwen3vlmoe: the text halves of Qwen's vision models.

They are qwen2, qwen3 and qwen3moe. Rows of images have a position in time, height and width, each
of which rotates a part of a head; of text, the three are equal.
Source: llama.cpp src/models/qwen2vl.cpp, qwen3vl.cpp and qwen3vlmoe.cpp; transformers' Qwen2VL,
Qwen2_5_VL, Qwen3VL and Qwen3VLMoe.
"""

from __future__ import annotations

from functools import partial

from trinity.config import ModelConfig
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads
from trinity.formats.huggingface.rope import rope_sections
from trinity.formats.huggingface.values import Values
from trinity.models.architecture import Architecture
from trinity.models.llama import layer
from trinity.models.qwen import WINDOW_OFF
from trinity.models.qwen_moe import check_routing, qwen3_layer

ARCHITECTURES = (
    Architecture(("qwen2vl",), layer, rope_halves=True, axes="blocks"),
    Architecture(
        ("qwen3vl",), partial(layer, head_norms=True), rope_halves=True, axes="interleaved"
    ),
    Architecture(
        ("qwen3vlmoe",), qwen3_layer, rope_halves=True, axes="interleaved", needs=("experts",)
    ),
)

# -- In transformers' checkpoints --

_SECTIONS_OF_2, _SECTIONS_OF_3 = (16, 24, 24), (24, 20, 20)  # where config.json has none
_ROPE_TYPES = ("mrope", "linear", "yarn")
_ATTENTION3 = {
    **table.attention(bias="attention_bias", output_bias="attention_bias"),
    **table.head_norms(),
}


def _keys2(config: ModelConfig, values: Values) -> Keys:
    check_even_heads(config, values)
    return {"rope.dimension_sections": rope_sections(values, _SECTIONS_OF_2)}


def _keys3(config: ModelConfig, values: Values) -> Keys:
    found = values.inner("vision_config").values.get("deepstack_visual_indexes")
    return {
        "rope.dimension_sections": rope_sections(values, _SECTIONS_OF_3),
        "n_deepstack_layers": len(found) if isinstance(found, list) else 0,
    }


def _expert_keys(config: ModelConfig, values: Values) -> Keys:
    check_routing(values, normalizes=True)
    return _keys3(config, values)


def _expert_table(config: ModelConfig, values: Values) -> table.Table:
    width = config.experts.intermediate_size if config.experts else 0
    stacks = table.turned_experts("mlp.experts", config.hidden_size, width)
    return table.pre_norm_layer(_ATTENTION3, {"ffn_gate_inp": "mlp.gate", **stacks})


FAMILIES = (
    Family(
        wrappers={
            "Qwen2VLForConditionalGeneration": "qwen2vl",
            "Qwen2_5_VLForConditionalGeneration": "qwen2vl",
        },
        layer=table.pre_norm_layer(table.attention(bias=True), table.gated()),
        keys=_keys2,
        windows=WindowTerms(max_window_layers="after"),
        rope_types=_ROPE_TYPES,
        defaults={
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5,
            "rope_theta": 1e6,
            "max_window_layers": 80,
            **WINDOW_OFF,
        },
    ),
    Family(
        wrappers={"Qwen3VLForConditionalGeneration": "qwen3vl"},
        layer=table.pre_norm_layer(_ATTENTION3, table.gated()),
        keys=_keys3,
        rope_types=_ROPE_TYPES,
        defaults={"head_dim": 128, "rope_theta": 500_000.0},
    ),
    Family(
        wrappers={"Qwen3VLMoeForConditionalGeneration": "qwen3vlmoe"},
        layer=_expert_table,
        keys=_expert_keys,
        rope_types=_ROPE_TYPES,
        # The class has no such key and always normalizes the weights of experts.
        defaults={"rope_theta": 500_000.0, "norm_topk_prob": True},
        experts=ExpertTerms(("num_experts", "num_local_experts")),
    ),
)
