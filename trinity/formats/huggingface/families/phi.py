"""Phi 2, and Phi 3, 3.5, 4 and 4 mini, whose projections are fused in GGUF as they are here."""

from __future__ import annotations

from collections.abc import Iterator

from trinity.errors import UnsupportedError
from trinity.formats.huggingface.blocks import attention, embedding, linear, norm, vector
from trinity.formats.huggingface.config import HFConfig, Terms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Module


def _phi2_layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, width = config.hidden_size, config.intermediate_size
    yield from norm("attn_norm", "input_layernorm", hidden, bias=True)
    yield from attention(config, bias=True, output_bias=True, output="self_attn.dense")
    yield from linear("ffn_up", "mlp.fc1", width, hidden, bias=True)
    yield from linear("ffn_down", "mlp.fc2", hidden, width, bias=True)


def _phi2_ends(config: HFConfig) -> Iterator[Module]:
    yield embedding(config)
    yield from norm("output_norm", "model.final_layernorm", config.hidden_size, bias=True)
    yield vector("output.bias", "lm_head.bias", (config.vocab_size,))


def _phi2_keys(config: HFConfig) -> Keys:
    if config.values.flag("qk_layernorm"):
        raise UnsupportedError(
            f"{config.source}: qk_layernorm is true; GGUF's phi2 has no norms of Q and K"
        )
    return {}


def _phi3_layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, width = config.hidden_size, config.intermediate_size
    qkv = config.query_size + 2 * config.kv_size
    yield from norm("attn_norm", "input_layernorm", hidden)
    yield from linear("attn_qkv", "self_attn.qkv_proj", qkv, hidden)
    yield from linear("attn_output", "self_attn.o_proj", hidden, config.query_size)
    yield from norm("ffn_norm", "post_attention_layernorm", hidden)
    yield from linear("ffn_up", "mlp.gate_up_proj", 2 * width, hidden)
    yield from linear("ffn_down", "mlp.down_proj", hidden, width)


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
        layer=_phi2_layer,
        ends=_phi2_ends,
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
        layer=_phi3_layer,
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
