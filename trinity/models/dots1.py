"""dots1 (dots.llm1): norms over heads; the first layers are dense, the others have experts.

Experts are chosen by sigmoid, with a bias that only affects the choice.
Source: llama.cpp src/models/dots1.cpp; transformers' Dots1.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import attention, head_norms, pre_norm_layer
from trinity.models import expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import attention_branch
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *attention_branch(config, index, has, head_norms=True),
        *expert_blocks.after_dense_layers(config, index, has, gating="sigmoid"),
    ]


ARCHITECTURES = (Architecture(("dots1",), _layer, rope_halves=True, needs=("experts",)),)

# -- In transformers' checkpoints --

_LAYER = pre_norm_layer(
    {**attention(bias="attention_bias"), **head_norms()}, mixture.CHOSEN_WITH_BIAS
)

FAMILY = Family(
    classes={"Dots1ForCausalLM": "dots1"},
    layer=_LAYER,
    keys=lambda config, values: mixture.keys_of_experts(config, values, sigmoid=True),
    windows=WindowTerms(max_window_layers="after"),
    defaults={
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "max_window_layers": 62,
        "n_group": 1,
        "topk_group": 1,
    },
    experts=ExpertTerms(("n_routed_experts", "num_experts")),
)
