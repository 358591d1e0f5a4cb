"""mellum (Mellum 2): qwen3moe with windowed layers, which rotate by a table of their own.

Source: llama.cpp src/models/mellum.cpp; transformers' Mellum. llama.cpp gives windowed layers the
base of the others; here they have the file's base for them, as in transformers.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation
from trinity.models.qwen_moe import LAYER3

_PERIOD = 4  # the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    window = config.window_of(index, _PERIOD)
    rotation = blocks.unscaled_in_windows(config, window)
    attention = blocks.attention(config, rotation, window=window)
    return [
        *blocks.attention_branch(config, has, attention, head_norms=True),
        *expert_blocks.routed(config, has, "silu"),
    ]


ARCHITECTURES = (Architecture(("mellum",), _layer, rope_halves=True, needs=("experts",)),)

# -- In transformers' checkpoints --


def _check(config: ModelConfig, values: Values) -> None:
    sparse = ["sparse"] * config.num_layers
    refuse_other(values, {"norm_topk_prob": (True,), "mlp_layer_types": (None, sparse)})


FAMILY = Family(
    classes={"MellumForCausalLM": "mellum"},
    layer=LAYER3,
    check=_check,
    unused=r"(model\.)?mtp\..*",
    windows=WindowTerms(1, gguf="layers"),  # if layers are not listed, none has a window
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 4,
        "sliding_window": 1024,
        "norm_topk_prob": True,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
    },
    experts=ExpertTerms(("num_experts", "num_local_experts")),
)
