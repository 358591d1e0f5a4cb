"""GLM 4 of 2025: norms before and behind attention and feed-forward; gate and up are one tensor."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface.blocks import attention, linear, norm
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.stored import Module


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, width = config.hidden_size, config.intermediate_size
    yield from norm("attn_norm", "input_layernorm", hidden)
    yield from attention(config, bias=config.values.flag("attention_bias"))
    yield from norm("post_attention_norm", "post_self_attn_layernorm", hidden)
    yield from norm("ffn_norm", "post_attention_layernorm", hidden)
    yield from linear("ffn_up", "mlp.gate_up_proj", 2 * width, hidden)
    yield from linear("ffn_down", "mlp.down_proj", hidden, width)
    yield from norm("post_ffw_norm", "post_mlp_layernorm", hidden)


FAMILIES = (
    Family(
        class_names=("Glm4ForCausalLM",),
        architectures={"silu": "glm4"},
        layer=_layer,
        terms=Terms(
            defaults={
                "head_dim": 128,
                "num_key_value_heads": 2,
                "rms_norm_eps": 1.5625e-7,
                "partial_rotary_factor": 0.5,
                "attention_bias": True,
            },
            partial_rope=True,
        ),
    ),
)
