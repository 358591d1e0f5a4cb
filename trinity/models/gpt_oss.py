"""gpt-oss: biases everywhere, a sink for each head, every second layer windowed, experts.

The file's ``post_attention_norm`` is the norm before the experts, behind the residual sum. The
limits of the activation are constants. The checkpoints' YaRN has fractional ends of its ramp, which
no GGUF can say, and readers round them.
Source: llama.cpp src/models/openai-moe.cpp; transformers' GptOss.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_PERIOD = 2  # the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(
            config, blocks.rotation_of(config), window=config.window_of(index, _PERIOD),
            sinks="attn_sinks",
        ),
        blocks.attention_output(config),
        blocks.norm(config, "x", "post_attention_norm", "h"),
        *expert_blocks.routed(config, has, "swiglu_oai", gating="softmax_chosen", normalize=False),
    ]  # fmt: skip


ARCHITECTURES = (
    Architecture(
        ("gpt-oss",), _layer, rope_halves=True,
        needs=(expert_blocks.NEEDED, ("sliding_window", "attention.sliding_window")),
    ),
)  # fmt: skip
