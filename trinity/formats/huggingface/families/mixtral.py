"""Mixtral: Llama with experts, which GGUF counts as llama too."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface.blocks import attention, experts, norm, router
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.stored import Module


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    yield from norm("attn_norm", "input_layernorm", config.hidden_size)
    yield from attention(config, permuted=True)
    yield from norm("ffn_norm", "post_attention_layernorm", config.hidden_size)
    yield router(config, "block_sparse_moe.gate")
    yield from experts(config, "block_sparse_moe.experts", gate="w1", up="w3", down="w2")


FAMILIES = (
    Family(
        class_names=("MixtralForCausalLM",),
        architectures={"silu": "llama"},
        layer=_layer,
        # What it is where there is no key: feed_forward_length.
        keys=lambda config: {"expert_feed_forward_length": None},
        terms=Terms(
            windows=True,
            defaults={"rms_norm_eps": 1e-5, "rope_theta": 1e6},
            experts=ExpertTerms(("num_local_experts", "num_experts"), width="intermediate_size"),
        ),
    ),
)
