"""llama: Llama 1 to 3, Mistral, TinyLlama, and ternary models stored under this architecture.

Source: llama.cpp src/models/llama.cpp; its converters permute Q and K rows so that neighbouring
dimensions rotate together.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def layer(
    config: ModelConfig, index: int, has: Has, *, head_norms: bool | None = None
) -> list[Operation]:
    """A layer of llama, and of the families that differ from it in names and biases alone.

    ``head_norms``: see ``blocks.projections``.
    """
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has, head_norms=head_norms),
        *blocks.attention(
            config,
            blocks.rotation_of(config),
            window=config.window_of(index, 0),
            scale=config.attention_scale,
        ),
        blocks.attention_output(config),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "silu"),
        blocks.feed_forward_output(config),
    ]


ARCHITECTURES = (Architecture(("llama",), layer, rope_halves=False),)
