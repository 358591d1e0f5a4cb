"""Mixtral: Llama with experts, which GGUF counts as llama too."""

from __future__ import annotations

from trinity.formats.huggingface.config import ExpertTerms, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.table import Table, attention, experts

_LAYER: Table = {
    "attn_norm": "input_layernorm",
    **attention(permuted=True),
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate_inp": "block_sparse_moe.gate",
    **experts("block_sparse_moe.experts", gate="w1", up="w3", down="w2"),
}

FAMILIES = (
    Family(
        class_names=("MixtralForCausalLM",),
        architectures={"silu": "llama"},
        layer=_LAYER,
        # What it is where there is no key: feed_forward_length.
        keys=lambda config: {"expert_feed_forward_length": None},
        terms=Terms(
            windows=True,
            defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6},
            experts=ExpertTerms(("num_local_experts", "num_experts"), width="intermediate_size"),
        ),
    ),
)
