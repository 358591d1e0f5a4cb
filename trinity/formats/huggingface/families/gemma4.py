"""Gemma 4: heads of two sizes, some layers with the keys and values of others, experts in some.

``per_layer_config`` says what differs by layer; older configurations have ``global_head_dim`` and
``num_global_key_value_heads``. Source: transformers Gemma4TextConfig; llama.cpp
conversion/gemma.py, Gemma4Model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.blocks import (
    embedding,
    experts_of,
    gated,
    linear,
    norm,
    router,
    vector,
)
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms, check_heads
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.stored import Module, Stored, rows
from trinity.formats.huggingface.values import shown

_TANH = "gelu_pytorch_tanh"
_SWITCH = "experts.switch_glu"  # mlx-lm's experts, with gate and up apart


def _heads(config: HFConfig, index: int) -> tuple[int, int]:
    """Dimensions of a head and number of heads of keys in a layer."""
    values = config.values
    if config.windowed[index]:
        return config.head_dim, config.num_kv_heads
    if values.has("per_layer_config"):
        own = values.inner("per_layer_config").inner(str(index))
        return (
            own.size("head_dim", "head_dim", config.head_dim),
            own.size("num_key_value_heads", "num_kv_heads", config.num_kv_heads),
        )
    kv_heads = config.num_kv_heads
    if values.flag("attention_k_eq_v"):
        kv_heads = values.size("num_global_key_value_heads", "num_kv_heads", kv_heads)
    return values.size("global_head_dim", "head_dim"), kv_heads


def _full_heads(config: HFConfig) -> tuple[int, int]:
    """The same of all layers without a window. Raises where GGUF cannot say them."""
    values, full = config.values, [i for i, has in enumerate(config.windowed) if not has]
    if not full or full[-1] != config.num_layers - 1:
        raise ConfigError(f"{config.source}: the last layer must be one of full_attention")
    overrides = values.inner("per_layer_config")
    if not set(overrides.values) <= {str(i) for i in full}:
        raise UnsupportedError(
            f"{overrides.source} is {shown(dict(overrides.values))}; in GGUF only layers without a "
            "window have sizes of their own"
        )
    found = {_heads(config, i) for i in full}
    if len(found) > 1:
        raise UnsupportedError(
            f"{config.source}: layers without a window have heads of different sizes or numbers, "
            f"{sorted(found)}; in GGUF these are alike"
        )
    head_dim, kv_heads = found.pop()
    if head_dim % 2 or config.num_heads % kv_heads:
        raise ConfigError(
            f"{config.source}: layers without a window have heads of {head_dim} dimensions, "
            f"{kv_heads} of keys for {config.num_heads}; expected an even number, and a divisor"
        )
    check_heads(values, config.num_layers, config.num_heads, kv_heads, head_dim)
    return head_dim, kv_heads


def _first_shared(config: HFConfig) -> int:
    """The first of the layers that read other layers' keys and values."""
    shared = config.values.size("num_kv_shared_layers", "shared_kv_layers", 0, smallest=0)
    own = config.windowed[: max(0, config.num_layers - shared)]
    if set(own) != set(config.windowed):
        raise config.values.error(
            "num_kv_shared_layers", "leaves no layer of each kind with keys and values of its own"
        )
    return config.num_layers - shared


def _widths(config: HFConfig) -> list[int]:
    """Of the feed-forward in each layer."""
    width, own = config.intermediate_size, _first_shared(config)
    wide = 2 * width if config.values.flag("use_double_wide_mlp") else width
    return [width] * own + [wide] * (config.num_layers - own)


def _layer_inputs(config: HFConfig) -> int:
    return config.values.size("hidden_size_per_layer_input", "per_layer_input_size", 0, smallest=0)


def _attention(config: HFConfig, index: int) -> Iterator[Module]:
    head_dim, kv_heads = _heads(config, index)
    hidden, query, kv = config.hidden_size, config.num_heads * head_dim, kv_heads * head_dim
    yield from linear("attn_q", "self_attn.q_proj", query, hidden)
    yield from norm("attn_q_norm", "self_attn.q_norm", head_dim)
    if index < _first_shared(config):
        yield from linear("attn_k", "self_attn.k_proj", kv, hidden)
        yield from norm("attn_k_norm", "self_attn.k_norm", head_dim)
        if config.windowed[index] or not config.values.flag("attention_k_eq_v"):
            yield from linear("attn_v", "self_attn.v_proj", kv, hidden)
    yield from linear("attn_output", "self_attn.o_proj", hidden, query)


def _experts(config: HFConfig) -> Iterator[Module]:
    """Experts beside the dense feed-forward; the rows of gate and up stay one tensor, or two."""
    count, width = experts_of(config)
    hidden = config.hidden_size
    yield router(config, "router.proj")
    yield vector("ffn_gate_inp.scale", "router.scale", (hidden,))
    yield vector("ffn_down_exps.scale", "router.per_expert_scale", (count,))
    both = Stored(("experts.gate_up_proj",), (count, 2 * width, hidden))
    half, down = (count, width, hidden), (count, hidden, width)
    gate, up = (
        Module(
            f"ffn_{part}_exps.weight",
            half,
            (Stored((f"{_SWITCH}.{part}_proj.weight",), half), replace(both, view=view)),
            "linear",
        )
        for part, view in (("gate", rows(0, width)), ("up", rows(width)))
    )
    yield Module("ffn_gate_up_exps.weight", both.shape, (both,), "linear", instead=(gate, up))
    names = ("experts.down_proj", f"{_SWITCH}.down_proj.weight")
    forms = tuple(Stored((name,), down) for name in names)
    yield Module("ffn_down_exps.weight", down, forms, "linear")
    yield from norm("pre_ffw_norm_2", "pre_feedforward_layernorm_2", hidden)
    yield from norm("post_ffw_norm_1", "post_feedforward_layernorm_1", hidden)
    yield from norm("post_ffw_norm_2", "post_feedforward_layernorm_2", hidden)


def _layer(config: HFConfig, index: int) -> Iterator[Module]:
    hidden, inputs = config.hidden_size, _layer_inputs(config)
    yield from norm("attn_norm", "input_layernorm", hidden)
    yield from _attention(config, index)
    yield from norm("post_attention_norm", "post_attention_layernorm", hidden)
    yield from norm("ffn_norm", "pre_feedforward_layernorm", hidden)
    yield from gated(hidden, _widths(config)[index])
    yield from norm("post_ffw_norm", "post_feedforward_layernorm", hidden)
    if config.experts is not None:
        yield from _experts(config)
    if inputs:
        yield from linear("inp_gate", "per_layer_input_gate", inputs, hidden)
        yield from linear("proj", "per_layer_projection", hidden, inputs)
        yield from norm("post_norm", "post_per_layer_input_norm", hidden)
    yield vector("layer_output_scale.weight", "layer_scalar", (1,))


def _ends(config: HFConfig) -> Iterator[Module]:
    yield embedding(config)
    yield from norm("output_norm", "model.norm", config.hidden_size)
    inputs = _layer_inputs(config)
    if inputs:
        rows = config.values.size("vocab_size_per_layer_input", "vocab_size", config.vocab_size)
        if rows != config.vocab_size:
            raise UnsupportedError(
                f"{config.source}: vocab_size_per_layer_input is {rows} and vocab_size "
                f"{config.vocab_size}; in GGUF they are the same"
            )
        shape = (rows, config.num_layers * inputs)
        form = Stored(("model.embed_tokens_per_layer.weight",), shape)
        yield Module("per_layer_token_embd.weight", shape, (form,), "matrix")
        projection = "model.per_layer_model_projection"
        yield from linear("per_layer_model_proj", projection, shape[1], config.hidden_size)
        yield from norm("per_layer_proj_norm", "model.per_layer_projection_norm", inputs)


def _keys(config: HFConfig) -> Keys:
    values = config.values
    if values.has("use_bidirectional_attention") and (
        values.text("use_bidirectional_attention", "") != "vision"
    ):
        raise UnsupportedError(
            f"{config.source}: use_bidirectional_attention is "
            f"{shown(values.values['use_bidirectional_attention'])}; trinity reads models "
            "that write"
        )
    head_dim, kv_heads = _full_heads(config)
    keys: dict[str, object] = {
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.key_length_swa": config.head_dim,
        "attention.value_length_swa": config.head_dim,
        "rope.dimension_count_swa": config.head_dim,
        "attention.shared_kv_layers": config.num_layers - _first_shared(config),
        "embedding_length_per_layer_input": _layer_inputs(config),
        **window_keys(config),
    }
    if values.has("final_logit_softcapping"):
        softcap = values.real("final_logit_softcapping", "final_logit_softcap")
        keys["final_logit_softcapping"] = softcap
    if kv_heads != config.num_kv_heads:
        heads = [_heads(config, layer)[1] for layer in range(config.num_layers)]
        keys["attention.head_count_kv"] = np.array(heads, np.int32)
    widths = _widths(config)
    if set(widths) != {config.intermediate_size}:
        keys["feed_forward_length"] = np.array(widths, np.int32)
    return keys


def _unused(config: HFConfig) -> str:
    """Projections of layers that read other layers' keys and values."""
    layers = "|".join(map(str, range(_first_shared(config), config.num_layers)))
    return rf"model\.layers\.(?:{layers})\.self_attn\.(?:k_proj|v_proj|k_norm)\.weight"


FAMILIES = (
    Family(
        class_names=("Gemma4ForCausalLM",),
        wrappers=("Gemma4ForConditionalGeneration",),
        architectures={_TANH: "gemma4"},
        layer=_layer,
        ends=_ends,
        keys=_keys,
        rope_dim=lambda config: _full_heads(config)[0],
        unused=_unused,
        tokenizer="gemma4",
        terms=Terms(
            windows=True,
            defaults={
                "head_dim": 256,
                "global_head_dim": 512,
                "hidden_activation": _TANH,
                "hidden_size_per_layer_input": 256,
                "vocab_size_per_layer_input": 262_144,
                "sliding_window": 512,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
                    "full_attention": {
                        "rope_type": "proportional",
                        "partial_rotary_factor": 0.25,
                        "rope_theta": 1_000_000.0,
                    },
                },
                "tie_word_embeddings": True,
            },
            activation="hidden_activation",
            experts=ExpertTerms(
                ("num_experts", "num_local_experts"),
                used="top_k_experts",
                switch="enable_moe_block",
            ),
            window_period=6,
            rope_types=("proportional",),
        ),
        window_in_keys=True,
    ),
)
