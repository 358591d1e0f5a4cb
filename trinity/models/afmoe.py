"""afmoe (Arcee Trinity): gated attention, norms before and after each branch, experts.

Embeddings are multiplied by the root of their width. Three windowed layers, which rotate, precede a
full one, which does not. The output of attention is multiplied by the sigmoid of a gate. The first
layers are dense; the others have experts, chosen by sigmoid, and a shared one.
Source: llama.cpp src/models/afmoe.cpp; transformers' Afmoe.
"""

from __future__ import annotations

import math

from trinity.config import ModelConfig
from trinity.formats.huggingface import mixture, table
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_PERIOD = 4  # the last layer of each period sees all positions


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has, head_norms=True),
        blocks.attention_gate(config),
        *blocks.windowed_attention(config, index, _PERIOD),
        *blocks.gated_attention_output(config, "h", add=False),
        blocks.norm(config, "h", "post_attention_norm", "x", add=True),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *expert_blocks.after_dense_layers(config, index, has, gating="sigmoid", out="ffn_out"),
        blocks.norm(config, "ffn_out", "post_ffw_norm", "x", add=True),
    ]


ARCHITECTURES = (
    Architecture(
        ("afmoe",), _layer, rope_halves=True,
        embedding_scale=lambda config: math.sqrt(config.hidden_size),
        needs=("experts", "sliding_window"),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_LAYER: table.Table = {
    "attn_norm": "input_layernorm",
    **table.attention(bias="attention_bias", output_bias="attention_bias"),
    **table.head_norms(),
    "attn_gate": "self_attn.gate_proj",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_mlp_layernorm",
    **table.gated(),
    "ffn_gate_inp": "mlp.router.gate",
    "exp_probs_b.bias": table.tensor("mlp.expert_bias"),
    **table.experts("mlp.experts"),
    **table.gated("mlp.shared_experts", suffix="_shexp"),
    "post_ffw_norm": "post_mlp_layernorm",
}


def _keys(config: ModelConfig, values: Values) -> Keys:
    # The class always normalizes weights and may leave embeddings as they are; readers of GGUF
    # normalize by a key and always multiply embeddings.
    refuse_other(values, {"mup_enabled": (True,), "route_norm": (None, True)})
    return mixture.keys_of_experts(config, values, sigmoid=True, grouped=False)


FAMILY = Family(
    classes={"AfmoeForCausalLM": "afmoe"},
    layer=_LAYER,
    keys=_keys,
    windows=WindowTerms(_PERIOD, gguf="unusual layers"),
    defaults={
        "head_dim": 128,
        "rms_norm_eps": 1e-5,
        "sliding_window": 1024,
        "first_k_dense_replace": 1,
        "n_shared_experts": 2,
        "norm_topk_prob": True,
        "tie_word_embeddings": False,
    },
    experts=ExpertTerms(("num_experts", "num_local_experts")),
    older={  # the class's words for DeepSeek's
        "first_k_dense_replace": "num_dense_layers",
        "n_shared_experts": "num_shared_experts",
        "routed_scaling_factor": "route_scale",
        "sliding_window_pattern": "global_attn_every_n_layers",
    },
)
