"""Granite 3, dense and with experts. GGUF has the rows of Q and K permuted."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.formats.huggingface.blocks import (
    attention,
    experts_of,
    gated,
    linear,
    norm,
    vector,
)
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Module, Stored, rows

_SCALES = {
    "attention.scale": ("attention_multiplier", "attention_scale"),
    "embedding_scale": ("embedding_multiplier", "embedding_scale"),
    "residual_scale": ("residual_multiplier", "residual_scale"),
    "logit_scale": ("logits_scaling", "logit_scale"),
}


def _attention(config: HFConfig) -> Iterator[Module]:
    bias = config.values.flag("attention_bias")
    yield from norm("attn_norm", "input_layernorm", config.hidden_size)
    yield from attention(config, bias=bias, output_bias=bias, permuted=True)
    yield from norm("ffn_norm", "post_attention_layernorm", config.hidden_size)


def _dense_layer(config: HFConfig, index: int) -> Iterator[Module]:
    yield from _attention(config)
    bias = config.values.flag("mlp_bias")
    yield from gated(config.hidden_size, config.intermediate_size, bias=bias)


def _expert_layer(config: HFConfig, index: int) -> Iterator[Module]:
    yield from _attention(config)
    yield from feed_forward(config)


def feed_forward(config: HFConfig) -> Iterator[Module]:
    """Experts, and what every token takes.

    The rows of gate and up lie in one tensor, gate first; in mlx-lm's directories apart.
    """
    count, width = experts_of(config)
    hidden, source = config.hidden_size, "block_sparse_moe"
    yield vector("ffn_gate_inp.weight", f"{source}.router.layer.weight", (count, hidden))
    both, stored = (f"{source}.input_linear.weight",), (count, 2 * width, hidden)
    down, wide = (f"{source}.output_linear.weight",), (count, hidden, width)
    for part, shape, form in (
        ("gate", (count, width, hidden), Stored(both, stored, rows(0, width))),
        ("up", (count, width, hidden), Stored(both, stored, rows(width))),
        ("down", wide, Stored(down, wide)),
    ):
        apart = Stored((f"{source}.switch_mlp.{part}_proj.weight",), shape)
        yield Module(f"ffn_{part}_exps.weight", shape, (form, apart), "linear")
    shared = _shared_width(config)
    if shared:
        both = ("shared_mlp.input_linear.weight",)
        for name, view in (("ffn_gate_shexp", rows(0, shared)), ("ffn_up_shexp", rows(shared))):
            form = Stored(both, (2 * shared, hidden), view)
            yield Module(f"{name}.weight", (shared, hidden), (form,), "linear")
        yield from linear("ffn_down_shexp", "shared_mlp.output_linear", hidden, shared)


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
        layer=_dense_layer,
        keys=scales,
    ),
    Family(
        class_names=("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"),
        architectures={"silu": "granitemoe"},
        layer=_expert_layer,
        keys=_expert_keys,
        terms=Terms(experts=ExpertTerms(("num_local_experts",), width="intermediate_size")),
    ),
)
