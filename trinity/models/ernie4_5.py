"""ernie4_5 and ernie4_5-moe: llama; checkpoints also rotate neighbouring dimensions.

paddleocr, the text of PaddleOCR-VL, rotates halves.

In ernie4_5-moe, every n-th layer after the first ones has experts, chosen with a bias, and a shared
one.

Source: llama.cpp src/models/ernie4-5.cpp and ernie4-5-moe.cpp; transformers' Ernie4_5 and
Ernie4_5_Moe.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.rope import rope_sections
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.table import TableRow, attention, gated, pre_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import attention_branch, layer
from trinity.models.operations import Operation


def _expert_layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *attention_branch(config, index, has),
        *expert_blocks.after_dense_layers(config, index, has, normalize=True),
    ]


ARCHITECTURES = (
    Architecture(("ernie4_5",), layer, rope_halves=False),
    Architecture(("paddleocr",), layer, rope_halves=True, axes="blocks"),
    Architecture(("ernie4_5-moe",), _expert_layer, rope_halves=False, needs=("experts",)),
)

# -- In transformers' checkpoints --

_LAYER = pre_norm_layer(attention(), gated())
_CHOICE = "mlp.moe_statics.e_score_correction_bias"  # (1, experts)
_EXPERT_LAYER = pre_norm_layer(
    attention(),
    {
        **mixture.CHOSEN_WITH_BIAS,
        "exp_probs_b.bias": TableRow((Stored((_CHOICE,), lambda array: array.reshape(-1)),)),
    },
)


def _expert_keys(config: ModelConfig, values: Values) -> Keys:
    last = config.num_layers - 1
    refuse_other(values, {"moe_layer_end_index": (None, -1, last), "use_bias": (None, False)})
    step = values.size("moe_layer_interval", "expert_layer_step", 1)
    keys = mixture.keys_of_experts(config, values, sigmoid=False, grouped=False)
    width = config.experts.intermediate_size if config.experts else 0
    shared = keys["num_shared_experts"]
    assert isinstance(shared, int)
    return {**keys, "shared_intermediate_size": width * shared or None, "expert_layer_step": step}


def _sections(config: ModelConfig, values: Values) -> Keys:
    return {"rope.dimension_sections": rope_sections(values, (16, 24, 24))}


FAMILIES = (
    Family(
        wrappers={"PaddleOCRVLForConditionalGeneration": "paddleocr"},
        layer=pre_norm_layer(
            attention(bias="use_bias", output_bias="use_bias"), gated("mlp", bias="use_bias")
        ),
        keys=_sections,
        rope_types=("mrope",),
        defaults={
            "head_dim": 128,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "tie_word_embeddings": True,
        },
    ),
    Family(
        classes={"Ernie4_5ForCausalLM": "ernie4_5", "Ernie4_5_ForCausalLM": "ernie4_5"},
        layer=_LAYER,
        defaults={
            "head_dim": 128,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "tie_word_embeddings": True,
        },
        renames=(("ernie.", "model."),),
    ),
    Family(
        classes={"Ernie4_5_MoeForCausalLM": "ernie4_5-moe"},
        layer=_EXPERT_LAYER,
        keys=_expert_keys,
        renames=(("ernie.", "model."),),
        unused=r"model\.mtp_.*",
        defaults={
            "num_key_value_heads": 4,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500_000.0,
            "tie_word_embeddings": True,
            "num_experts_per_tok": 6,
            "num_experts": 64,
            "moe_intermediate_size": 1536,
            "first_k_dense_replace": 1,
            "n_shared_experts": 2,
        },
        experts=ExpertTerms(("num_experts",)),
        older={  # the class's words; if both names are given, transformers takes the other
            "num_experts": "moe_num_experts",
            "num_experts_per_tok": "moe_k",
            "first_k_dense_replace": "moe_layer_start_index",
            "n_shared_experts": "moe_num_shared_experts",
        },
    ),
)
