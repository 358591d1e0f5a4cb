"""qwen2moe and qwen3moe: Qwen's attention, experts in the place of the feed-forward.

Qwen 2's weights of experts are not normalized, and there is one that every token takes, times the
sigmoid of a score. Qwen 3's are always normalized, whatever the checkpoint's configuration said.
Source: llama.cpp src/models/qwen2moe.cpp and qwen3moe.cpp; transformers' Qwen2Moe and Qwen3Moe.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.models import expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import attention_branch
from trinity.models.operations import Operation


def _qwen2(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *attention_branch(config, index, has, head_norms=False),
        *expert_blocks.routed(
            config, has, "silu", size=expert_blocks.size_of(config), normalize=False
        ),
        *expert_blocks.shared_expert(config, "silu", size=config.intermediate_size, gated=True),
    ]


def _qwen3(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *attention_branch(config, index, has, head_norms=True),
        *expert_blocks.routed(config, has, "silu", size=expert_blocks.size_of(config)),
    ]


ARCHITECTURES = (
    Architecture(("qwen2moe",), _qwen2, rope_halves=True, needs=(expert_blocks.NEEDED,)),
    Architecture(("qwen3moe",), _qwen3, rope_halves=True, needs=(expert_blocks.NEEDED,)),
)
