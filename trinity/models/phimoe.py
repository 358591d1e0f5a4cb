"""phimoe (Phi-3.5-MoE): LayerNorm and biases, two experts of each token by sparsemixer, longrope.

Sparsemixer chooses the experts one after the other. The weight of each is its probability among
the experts that are left and whose scores are near the best one's, so the weights are near 1.
This is what the published class, transformers and vLLM compute, and what the model was trained
with. llama.cpp differs, and trinity does not follow it: its norms are RMS norms, its weights are a
softmax that is normalized to the sum 1, and its converter writes another factor of cosines and
sines than the checkpoint's ``short_mscale``.
Source: transformers' Phimoe; for names and keys llama.cpp src/models/phimoe.cpp and
conversion/phi.py.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads, refuse_other
from trinity.formats.huggingface.rope import rope_parameters, rope_type
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention, experts, tensor
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    attention = blocks.attention(
        config, blocks.rotation_of(config), window=config.window_of(index, 0)
    )
    return [
        *blocks.attention_branch(config, has, attention, head_norms=False, kind="layer"),
        *expert_blocks.routed(
            config, has, "silu", size=config.intermediate_size, gating="sparsemixer",
            normalize=False,
        ),
    ]  # fmt: skip


ARCHITECTURES = (
    Architecture(("phimoe",), _layer, rope_halves=True, norm="layer", needs=("experts",)),
)

# -- In transformers' checkpoints --

_LAYER: Table = {
    "attn_norm": at("input_layernorm", bias=True),
    **attention(bias="attention_bias", output_bias="attention_bias"),
    "ffn_norm": at("post_attention_layernorm", bias=True),
    "ffn_gate_inp": "block_sparse_moe.gate",
    **experts("block_sparse_moe.experts", gate="w1", up="w3", down="w2"),
}
_ENDS: Table = {
    **EMBEDDING,
    "output_norm": at("model.norm", bias=True),
    "output.bias": tensor("lm_head.bias", when="lm_head_bias"),
}


def _keys(config: ModelConfig, values: Values) -> Keys:
    check_even_heads(config, values)
    refuse_other(values, {"router_jitter_noise": (0.01,), "num_experts_per_tok": (2,)})
    keys: dict[str, object] = {"expert_intermediate_size": None}
    if rope_type(values) == "default":
        return keys
    parameters = rope_parameters(values)
    short, long = (
        parameters.real(f"{length}_mscale", "rope_attn_factor") for length in ("short", "long")
    )
    if short != long:
        raise UnsupportedError(
            f"{parameters.source}: short_mscale {short} and long_mscale {long} differ; GGUF has "
            "one value"
        )
    original = "original_max_position_embeddings"
    found = parameters if parameters.has(original) else values
    context = found.size(original, "rope_original_context")
    return {**keys, "rope_attn_factor": short, "rope_original_context": context}


FAMILY = Family(
    # Published checkpoints have the first name, those that transformers saves the second.
    classes={"PhiMoEForCausalLM": "phimoe", "PhimoeForCausalLM": "phimoe"},
    layer=_LAYER,
    ends=_ENDS,
    keys=_keys,
    windows=WindowTerms(gguf="size"),
    rope_types=("longrope", "su"),
    experts=ExpertTerms(("num_local_experts", "num_experts"), width="intermediate_size"),
    defaults={
        "num_experts_per_tok": 2,
        "num_key_value_heads": 8,
        "num_local_experts": 16,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "router_jitter_noise": 0.01,
        "tie_word_embeddings": False,
    },
)
