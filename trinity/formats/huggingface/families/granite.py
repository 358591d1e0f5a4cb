"""Granite 3, dense and with experts. GGUF has the rows of Q and K permuted."""

from __future__ import annotations

from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.families.llama import LAYER
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.table import Table, TableRow, attention, both_rows

_SCALES = {
    "attention.scale": ("attention_multiplier", "attention_scale"),
    "embedding_scale": ("embedding_multiplier", "embedding_scale"),
    "residual_scale": ("residual_multiplier", "residual_scale"),
    "logit_scale": ("logits_scaling", "logit_scale"),
}


ATTENTION = attention(bias="attention_bias", output_bias="attention_bias", permuted=True)
_MOE, _SHARED = "block_sparse_moe", "shared_mlp"
_GATE, _UP = both_rows(f"{_MOE}.input_linear.weight", f"{_MOE}.switch_mlp.{{}}_proj.weight")
_SHARED_GATE, _SHARED_UP = both_rows(f"{_SHARED}.input_linear.weight")
_DOWN = ("output_linear", "switch_mlp.down_proj")  # of transformers and of mlx-lm
# Experts, and what every token takes.
EXPERTS: Table = {
    "ffn_gate_inp": f"{_MOE}.router.layer",
    "ffn_gate_exps": _GATE,
    "ffn_up_exps": _UP,
    "ffn_down_exps": TableRow(tuple(Stored((f"{_MOE}.{name}.weight",)) for name in _DOWN)),
    "ffn_gate_shexp": _SHARED_GATE,
    "ffn_up_shexp": _SHARED_UP,
    "ffn_down_shexp": f"{_SHARED}.output_linear",
}
_EXPERT_LAYER: Table = {
    "attn_norm": "input_layernorm",
    **ATTENTION,
    "ffn_norm": "post_attention_layernorm",
    **EXPERTS,
}


def _shared_width(config: HFConfig) -> int:
    """Of the feed-forward that every token takes; 0 in a class that has none, whatever is said."""
    if config.class_name == "GraniteMoeForCausalLM":
        return 0
    return config.values.size("shared_intermediate_size", "shared_intermediate_size", 0, smallest=0)


def scales(config: HFConfig) -> Keys:
    """Of embeddings, scores, branches and logits."""
    return {key: config.values.real(name, field, 1.0) for key, (name, field) in _SCALES.items()}


def _expert_keys(config: HFConfig) -> Keys:
    shared = _shared_width(config)
    return {
        **scales(config),
        "expert_feed_forward_length": None,  # what it is without: feed_forward_length
        "expert_shared_feed_forward_length": shared or None,
    }


FAMILIES = (
    Family(
        class_names=("GraniteForCausalLM",),
        architectures={"silu": "granite"},
        layer=LAYER,
        keys=scales,
    ),
    Family(
        class_names=("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"),
        architectures={"silu": "granitemoe"},
        layer=_EXPERT_LAYER,
        keys=_expert_keys,
        terms=Terms(experts=ExpertTerms(("num_local_experts",), width="intermediate_size")),
    ),
)
