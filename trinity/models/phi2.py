"""phi2: parallel attention and feed-forward after one LayerNorm; biases everywhere.

Part of each head rotates. Older files have one weight for q, k and v.
Source: llama.cpp src/models/phi2.cpp; transformers' Phi.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention, tensor
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h", kind="layer"),
        *blocks.projections(config, has),
        *blocks.plain_attention(config),
        blocks.attention_output(config),
        *blocks.feed_forward(config, "gelu", form="up"),
    ]


ARCHITECTURES = (Architecture(("phi2",), _layer, rope_halves=True, norm="layer"),)

# -- In transformers' checkpoints --

_PHI2: Table = {
    "attn_norm": at("input_layernorm", bias=True),
    **attention(bias=True, output_bias=True, output="dense"),
    "ffn_up": at("mlp.fc1", bias=True),
    "ffn_down": at("mlp.fc2", bias=True),
}
_PHI2_ENDS: Table = {
    **EMBEDDING,
    "output_norm": at("model.final_layernorm", bias=True),
    "output.bias": tensor("lm_head.bias"),
}


def _phi2_check(config: ModelConfig, values: Values) -> None:
    if values.flag("qk_layernorm"):
        raise UnsupportedError(
            f"{values.source}: qk_layernorm is true; GGUF's phi2 has no norms of Q and K"
        )


FAMILY = Family(
    classes={"PhiForCausalLM": "phi2"},
    activations=("gelu_new", "gelu_pytorch_tanh"),
    layer=_PHI2,
    ends=_PHI2_ENDS,
    check=_phi2_check,
    defaults={"hidden_act": "gelu_new", "partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5},
    epsilon="layer_norm_eps",
    partial_rope=True,
)
