"""Gemma 4: heads of two sizes, some layers with the keys and values of others, experts in some.

``per_layer_config`` says what differs by layer; older configurations have ``global_head_dim`` and
``num_global_key_value_heads``. Source: transformers Gemma4TextConfig; llama.cpp
conversion/gemma.py, Gemma4Model.
"""

from __future__ import annotations

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.config import ExpertTerms, HFConfig, Terms, check_heads
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import window_keys
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.table import (
    EMBEDDING,
    Table,
    TableRow,
    attention,
    both_rows,
    gated,
    head_norms,
    tensor,
)
from trinity.formats.huggingface.values import Values, shown

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


_ENDS: Table = {
    **EMBEDDING,
    "output_norm": "model.norm",
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
_GATE_UP = "experts.gate_up_proj"
_GATE, _UP = both_rows(_GATE_UP, f"{_SWITCH}.{{}}_proj.weight")
_ATTENTION = {**attention(), **head_norms()}
_ORDER = ("attn_q", "attn_q_norm", "attn_k", "attn_k_norm", "attn_v", "attn_output")
_EXPERTS: Table = {
    "ffn_gate_inp": "router.proj",
    "ffn_gate_inp.scale": tensor("router.scale"),
    "ffn_down_exps.scale": tensor("router.per_expert_scale"),
    "ffn_gate_up_exps": TableRow((Stored((_GATE_UP,)),), optional=True),
    "ffn_gate_exps": _GATE,
    "ffn_up_exps": _UP,
    "ffn_down_exps": tensor("experts.down_proj", f"{_SWITCH}.down_proj.weight"),
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
}


def _layer(config: ModelConfig, values: Values) -> Table:
    layers = None
    if values.flag("attention_k_eq_v"):
        layers = {index for index in range(config.num_layers) if config.window_of(index, 1)}
    value = TableRow((Stored(("self_attn.v_proj.weight",)),), layers=layers)
    return {
        "attn_norm": "input_layernorm",
        **{name: value if name == "attn_v" else _ATTENTION[name] for name in _ORDER},
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        **gated(),
        "post_ffw_norm": "post_feedforward_layernorm",
        **_EXPERTS,
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
        "layer_output_scale": tensor("layer_scalar"),
    }


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
    rows = values.size("vocab_size_per_layer_input", "vocab_size", config.vocab_size)
    if _layer_inputs(config) and rows != config.vocab_size:
        raise UnsupportedError(
            f"{config.source}: vocab_size_per_layer_input is {rows} and vocab_size "
            f"{config.vocab_size}; in GGUF they are the same"
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
        ends=_ENDS,
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
