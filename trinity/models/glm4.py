"""glm4, chatglm (GLM-4 9B Chat, GLM-Edge): gate and up in one weight; partial rotation.

glm4 has norms before and after each branch, chatglm only before. The text of GLM 4.1V and GLM-OCR
is glm4, where halves of a head rotate together instead of neighbours, but only in GGUF.
Source: llama.cpp src/models/glm4.cpp and chatglm.cpp; transformers' Glm4, Glm, Glm4v and GlmOcr.
"""

from __future__ import annotations

from dataclasses import replace

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads
from trinity.formats.huggingface.rope import rope_sections
from trinity.formats.huggingface.stored import Stored, View
from trinity.formats.huggingface.table import Table, TableRow, attention, pre_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return blocks.between_norms(
        config,
        [*blocks.projections(config, has), *blocks.plain_attention(config)],
        blocks.feed_forward(config, "silu", form="fused", out="h"),
    )


def _older_layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *blocks.attention_branch(config, has),
        *blocks.feed_forward(config, "silu", form="fused"),
    ]


ARCHITECTURES = (
    Architecture(("glm4",), _layer, rope_halves=False, axes="blocks", halves_with_axes=True),
    Architecture(("chatglm",), _older_layer, rope_halves=False),
)

# -- In transformers' checkpoints --

_LAYER: Table = {
    "attn_norm": "input_layernorm",
    **attention(bias="attention_bias"),
    "post_attention_norm": "post_self_attn_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_mlp_layernorm",
}
_OLDER_LAYER = pre_norm_layer(
    attention(bias="attention_bias"),
    {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"},
)
SECTIONS = (8, 12, 12)  # where config.json has none


def _halves(config: ModelConfig, module: str, heads: int, suffix: str) -> TableRow:
    """Return a row whose neighbouring rows of each head become rows of its halves."""
    dim, turned = config.head_dim, config.rope_dim

    def part(start: int, stop: int, step: int) -> View:
        return lambda array: array[start:stop:step]

    parts: list[View] = []
    for first in range(0, heads * dim, dim):
        parts += [part(first, first + turned, 2), part(first + 1, first + turned, 2)]
        if turned < dim:
            parts.append(part(first + turned, first + dim, 1))
    return TableRow((Stored((f"{module}.{suffix}",), parts=tuple(parts)),))


def _vision_layer(config: ModelConfig, values: Values) -> Table:
    table = dict(_LAYER)
    for name, heads in (("q", config.num_heads), ("k", config.num_kv_heads)):
        module = f"self_attn.{name}_proj"
        table[f"attn_{name}"] = _halves(config, module, heads, "weight")
        if values.flag("attention_bias"):
            table[f"attn_{name}.bias"] = _halves(config, module, heads, "bias")
    return table


def _vision_keys(config: ModelConfig, values: Values) -> Keys:
    sections = rope_sections(values, SECTIONS)
    if min(sections[:2]) <= 0 or sections.sum() != config.rope_dim // 2:
        raise UnsupportedError(
            f"{values.source}: mrope_section is {sections[:3].tolist()}; expected parts of the "
            f"{config.rope_dim // 2} pairs of a head"
        )
    return {"rope.dimension_sections": sections}


def _vision_check(config: ModelConfig, values: Values) -> None:
    if values.flag("attention_bias"):
        check_even_heads(config, values)


_VISION = Family(
    wrappers={"Glm4vForConditionalGeneration": "glm4"},
    layer=_vision_layer,
    keys=_vision_keys,
    check=_vision_check,
    unused=mixture.unused,
    rope_types=("mrope",),
    partial_rope=True,
    defaults={"num_key_value_heads": 2, "rms_norm_eps": 1e-5, "attention_bias": True},
)
_TEXT = Family(
    classes={"Glm4ForCausalLM": "glm4"},
    layer=_LAYER,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1.5625e-7,
        "partial_rotary_factor": 0.5,
        "attention_bias": True,
    },
    partial_rope=True,
)
FAMILIES = (
    _TEXT,  # first, because adapters of GGUF models have its names and rows
    replace(_TEXT, classes={"GlmForCausalLM": "chatglm"}, layer=_OLDER_LAYER),
    _VISION,
    replace(
        _VISION,
        wrappers={"GlmOcrForConditionalGeneration": "glm4"},
        defaults={"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "attention_bias": False},
    ),
)
