"""phi3: Phi-3, 3.5, 4 and 4-mini. One weight for q, k and v, one for gate and up; longrope.

Files with frequency factors (longrope) have two sets: one for contexts up to the original length,
one for longer contexts.
Source: llama.cpp src/models/phi3.cpp; transformers' Phi3, whose window llama.cpp ignores.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.config import WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import pre_norm_layer
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    attention = blocks.attention(
        config, blocks.rotation_of(config), window=config.window_of(index, 0)
    )
    return [
        *blocks.attention_branch(config, has, attention),
        *blocks.feed_forward(config, "silu", form="fused"),
    ]


ARCHITECTURES = (Architecture(("phi3",), _layer, rope_halves=True),)

# -- In transformers' checkpoints --

_LAYER = pre_norm_layer(
    {"attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj"},
    {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"},
)


FAMILY = Family(
    classes={"Phi3ForCausalLM": "phi3"},
    wrappers={"Phi4ForCausalLMV": "phi3"},
    layer=_LAYER,
    # A window of 0 distinguishes Phi 4 from the others.
    windows=WindowTerms(gguf="size"),
    fields={"rope_original_context": "original_max_position_embeddings"},
    defaults={"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
    rope_types=("longrope", "su"),
    partial_rope=True,
)
