"""Phi 2, and Phi 3, 3.5, 4 and 4 mini, whose projections are fused in GGUF as they are here."""

from __future__ import annotations

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention, tensor

_PHI2: Table = {
    "attn_norm": at("input_layernorm", bias=True),
    **attention(bias=True, output_bias=True, output="dense"),
    "ffn_up": at("mlp.fc1", bias=True),
    "ffn_down": at("mlp.fc2", bias=True),
}
_PHI2_ENDS: Table = {
    **EMBEDDING,
    "output_norm": at("model.final_layernorm", bias=True),
    "output.bias": tensor("lm_head.bias"),
}
_PHI3: Table = {
    "attn_norm": "input_layernorm",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}


def _phi2_keys(config: HFConfig) -> Keys:
    if config.values.flag("qk_layernorm"):
        raise UnsupportedError(
            f"{config.source}: qk_layernorm is true; GGUF's phi2 has no norms of Q and K"
        )
    return {}


def _phi3_keys(config: HFConfig) -> Keys:
    """A window of 0 tells Phi 4 from the others."""
    original = config.values.size("original_max_position_embeddings", "rope_original_context")
    return {
        "rope.scaling.original_context_length": original,
        "attention.sliding_window": config.sliding_window,
    }


FAMILIES = (
    Family(
        class_names=("PhiForCausalLM",),
        architectures={"gelu_new": "phi2", "gelu_pytorch_tanh": "phi2"},
        layer=_PHI2,
        ends=_PHI2_ENDS,
        keys=_phi2_keys,
        terms=Terms(
            defaults={
                "hidden_act": "gelu_new",
                "partial_rotary_factor": 0.5,
                "layer_norm_eps": 1e-5,
            },
            epsilon="layer_norm_eps",
            partial_rope=True,
        ),
    ),
    Family(
        class_names=("Phi3ForCausalLM",),
        architectures={"silu": "phi3"},
        layer=_PHI3,
        keys=_phi3_keys,
        terms=Terms(
            windows=True,
            defaults={"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096},
            rope_types=("longrope", "su"),
            partial_rope=True,
        ),
        window_in_keys=True,
    ),
)
