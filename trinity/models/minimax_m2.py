"""minimax-m2: norms over the whole of q and of k, experts chosen by sigmoid in each layer.

A part of each head rotates.
Source: llama.cpp src/models/minimax-m2.cpp; transformers' MiniMaxM2.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.mixture import SIGMOID
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.olmoe import attention_branch
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *attention_branch(config, has),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *expert_blocks.routed(config, has, "silu", gating="sigmoid"),
    ]


ARCHITECTURES = (Architecture(("minimax-m2",), _layer, rope_halves=True, needs=("experts",)),)

# -- In transformers' checkpoints --

_MOE = "block_sparse_moe"
_LAYER = table.pre_norm_layer(
    {**table.attention(), **table.head_norms()},
    {
        "ffn_gate_inp": f"{_MOE}.gate",
        "exp_probs_b.bias": table.tensor(f"{_MOE}.e_score_correction_bias"),
        **table.experts(f"{_MOE}.experts", gate="w1", up="w3", down="w2"),
    },
)


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "scoring_func": (None, "sigmoid"),
            "use_qk_norm": (None, True),
            "qk_norm_type": (None, "per_layer"),
        },
    )
    rope_dim = config.rope_dim
    if not values.has("partial_rotary_factor") and rope_dim == config.head_dim:
        rope_dim = values.size("rotary_dim", "rope_dim", rope_dim)
    if rope_dim > config.head_dim or rope_dim % 2:
        raise values.error("rotary_dim", f"must be even and at most head_dim {config.head_dim}")
    return {"rope_dim": rope_dim, "expert_gating": SIGMOID}


FAMILY = Family(
    classes={"MiniMaxM2ForCausalLM": "minimax-m2"},
    layer=_LAYER,
    keys=_keys,
    partial_rope=True,
    defaults={
        "head_dim": 128,
        "num_key_value_heads": 8,
        "num_local_experts": 256,
        "num_experts_per_tok": 8,
        "rope_theta": 5e6,
        "tie_word_embeddings": False,
    },
    experts=ExpertTerms(("num_local_experts", "num_experts"), width="intermediate_size"),
)
