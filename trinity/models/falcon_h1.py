"""falcon-h1: attention and Mamba-2 side by side in every layer, on the same normalized input.

The file's weights hold all of the model's multipliers.
Source: llama.cpp src/models/falcon-h1.cpp; transformers' FalconH1.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks, mamba_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    # llama.cpp's converter leaves ".weight" away there.
    ffn_norm = "ffn_norm" if has("ffn_norm") else "ffn_norm."
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config), scale=config.attention_scale),
        blocks.attention_output(config),
        *mamba_blocks.mamba(config, has),
        blocks.norm(config, "x", ffn_norm, "h"),
        *blocks.feed_forward(config, "silu"),
        blocks.feed_forward_output(config),
    ]


ARCHITECTURES = (
    Architecture(("falcon-h1",), _layer, rope_halves=True, needs=(mamba_blocks.NEEDED,)),
)
