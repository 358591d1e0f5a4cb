"""gemma4: Gemma 4's 12B, 31B, E2B and E4B (an embedding for each layer), 26B-A4B (experts).

There are norms with plain weights before and after each branch, and one without weight over each
head of v. Windowed and full layers differ in head size, number of key-value heads and rotation;
full layers rotate only a part of each head. A layer without a weight for v uses k before its norm.
The last layers of some models have no keys and values and read those of the last layer of their
kind that has. Experts run in parallel to a dense feed-forward, and their router has its own norm.
Source: llama.cpp src/models/gemma4.cpp; transformers' Gemma4.

In config.json ``per_layer_config`` has the differences between layers; older configurations have
``global_head_dim`` and ``num_global_key_value_heads``. Source: transformers' Gemma4TextConfig;
llama.cpp conversion/gemma.py, Gemma4Model.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from trinity.config import ModelConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface import table
from trinity.formats.huggingface.config import ExpertTerms, WindowTerms, check_heads
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import windowed_layers
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, expert_blocks, layer_inputs
from trinity.models import operations as op
from trinity.models.architecture import Architecture, Has


def _layer(config: ModelConfig, index: int, has: Has) -> list[op.Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *_attention(config, index, has),
        blocks.norm(config, "h", "post_attention_norm", "x", add=True),
        *_feed_forward(config, index),
        *(_beside_experts(config, has) if config.experts else []),
        blocks.norm(config, "dense", "post_ffw_norm", "x", add=True),
        *_layer_embedding(config, index),
        *([op.Scale("x", config.hidden_size, weight="layer_output_scale")]
          if has("layer_output_scale") else []),
    ]  # fmt: skip


def _attention(config: ModelConfig, index: int, has: Has) -> list[op.Operation]:
    window = _window(config, index)
    heads, kv_heads = config.num_heads, config.kv_heads_of(index)
    size, rotation = config.head_dim, blocks.rotation_of(config)
    if window:
        size = config.head_dim_swa or size
        theta = config.rope_theta_swa or config.rope_theta
        rotation = op.Rotation(theta, config.rope_dim_swa or size)
    source = blocks.cache_of(config, index, 1)
    query = op.Product("attn_q", "q", heads * size)
    operations: list[op.Operation] = []
    if source is None:
        operations += _projections(config, query, kv_heads, size, has)
    else:
        operations.append(op.Linear("h", config.hidden_size, (query,)))
    return [
        *operations,
        op.Norm("q", "attn_q_norm", "q", size, heads),
        op.Rope(heads, kv_heads, size, rotation, stores=source is None),
        op.Attention(heads, kv_heads, size, 1.0, window, cache_of=source),
        op.Linear("a", heads * size, (op.Product("attn_output", "h", config.hidden_size),)),
    ]


def _projections(
    config: ModelConfig, query: op.Product, kv_heads: int, size: int, has: Has
) -> list[op.Operation]:
    width = kv_heads * size
    products = [query, op.Product("attn_k", "k", width)]
    if has("attn_v"):
        products.append(op.Product("attn_v", "v", width))
    return [
        op.Linear("h", config.hidden_size, tuple(products)),
        *([] if has("attn_v") else [op.Copy("k", "v", 1, width, width, width)]),
        op.Norm("k", "attn_k_norm", "k", size, kv_heads),
        op.Norm("v", "", "v", size, kv_heads),
    ]


def _window(config: ModelConfig, index: int) -> int:
    return config.window_of(index, 1)


def _feed_forward(config: ModelConfig, index: int) -> list[op.Operation]:
    size = config.intermediate_size_of(index)
    products = (op.Product("ffn_gate", "gate", size), op.Product("ffn_up", "up", size))
    down = op.Product("ffn_down", "dense", config.hidden_size)
    return [
        blocks.norm(config, "x", "ffn_norm", "h"),
        op.Linear("h", config.hidden_size, products, scales_bias=True),
        op.Gated("gelu", size),
        op.Linear("gate", size, (down,), scales_bias=True),
    ]


def _beside_experts(config: ModelConfig, has: Has) -> list[op.Operation]:
    """Experts, added to the result of the feed-forward."""
    hidden = config.hidden_size
    return [
        blocks.norm(config, "dense", "post_ffw_norm_1", "dense"),
        op.Norm("x", "ffn_gate_inp.scale", "h", hidden, factor=1 / math.sqrt(hidden)),
        expert_blocks.router(config),
        expert_blocks.route(config, has, "softmax", normalize=True),
        blocks.norm(config, "x", "pre_ffw_norm_2", "h"),
        *expert_blocks.mixture(config, has, "gelu", "h", add=False, scales_results=True),
        blocks.norm(config, "h", "post_ffw_norm_2", "dense", add=True),
    ]


def _layer_embedding(config: ModelConfig, index: int) -> list[op.Operation]:
    """Add the token's embedding for this layer, gated by the residual stream."""
    if not config.per_layer_input_size:
        return []
    return [
        *layer_inputs.projected(config, index, "x"),
        blocks.norm(config, "h", "post_norm", "x", add=True),
    ]


ARCHITECTURES = (
    Architecture(
        ("gemma4",), _layer, rope_halves=True,
        embedding_scale=lambda config: math.sqrt(config.hidden_size),
        tables=layer_inputs.tables, prologue=layer_inputs.prologue,
        images_both_ways="windowed", needs=("sliding_window", "sliding_window_pattern"),
        # Unused tensors of layers that share keys and values; some files contain them.
        unread=frozenset({"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_TANH = "gelu_pytorch_tanh"
_SWITCH = "experts.switch_glu"  # mlx-lm's experts, with separate gate and up


def _heads(config: ModelConfig, values: Values, index: int) -> tuple[int, int]:
    """The head size and the number of key-value heads of a layer."""
    if windowed_layers(config)[index]:
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


def _full_heads(config: ModelConfig, values: Values) -> tuple[int, int]:
    """Head size and KV heads of layers without a window. Raises if GGUF cannot express them."""
    full = [i for i, has in enumerate(windowed_layers(config)) if not has]
    if not full or full[-1] != config.num_layers - 1:
        raise ConfigError(f"{values.source}: the last layer must have full attention")
    overrides = values.inner("per_layer_config")
    if not set(overrides.values) <= {str(i) for i in full}:
        raise UnsupportedError(
            f"{overrides.source} is {shown(dict(overrides.values))}; in GGUF only layers without a "
            "window have sizes of their own"
        )
    heads = {_heads(config, values, i) for i in full}
    if len(heads) > 1:
        raise UnsupportedError(
            f"{values.source}: layers without a window have heads of different sizes or numbers, "
            f"{sorted(heads)}; in GGUF these are alike"
        )
    head_dim, kv_heads = heads.pop()
    if head_dim % 2 or config.num_heads % kv_heads:
        raise ConfigError(
            f"{values.source}: layers without a window have heads of {head_dim} dimensions, "
            f"{kv_heads} of keys for {config.num_heads}; expected an even number, and a divisor"
        )
    check_heads(values, config.num_layers, config.num_heads, kv_heads, head_dim)
    return head_dim, kv_heads


def first_shared(config: ModelConfig, values: Values) -> int:
    """The first layer that reads another layer's keys and values."""
    shared = values.size("num_kv_shared_layers", "shared_kv_layers", 0, smallest=0)
    windowed = windowed_layers(config)
    if set(windowed[: max(0, config.num_layers - shared)]) != set(windowed):
        raise values.error(
            "num_kv_shared_layers", "leaves no layer of each kind with keys and values of its own"
        )
    return config.num_layers - shared


def _widths(config: ModelConfig, values: Values) -> list[int]:
    """The width of the feed-forward in each layer."""
    width, own = config.intermediate_size, first_shared(config, values)
    wide = 2 * width if values.flag("use_double_wide_mlp") else width
    return [width] * own + [wide] * (config.num_layers - own)


def _layer_inputs(values: Values) -> int:
    return values.size("hidden_size_per_layer_input", "per_layer_input_size", 0, smallest=0)


def softcap_keys(values: Values) -> Keys:
    """The limit of logits, if the configuration has one."""
    if not values.has("final_logit_softcapping"):
        return {}
    return {"final_logit_softcap": values.real("final_logit_softcapping", "final_logit_softcap")}


ENDS: table.Table = {
    **table.EMBEDDING,
    "output_norm": "model.norm",
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
# A layer's dense feed-forward with the norms around it, and the layer's own embedding.
FEED_FORWARD: table.Table = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    **table.gated(),
    "post_ffw_norm": "post_feedforward_layernorm",
}
LAYER_INPUT: table.Table = {
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
}
_GATE_UP = "experts.gate_up_proj"
_GATE, _UP = table.both_rows(_GATE_UP, f"{_SWITCH}.{{}}_proj.weight")
_ATTENTION = {**table.attention(), **table.head_norms()}
_ORDER = ("attn_q", "attn_q_norm", "attn_k", "attn_k_norm", "attn_v", "attn_output")
_EXPERTS: table.Table = {
    "ffn_gate_inp": "router.proj",
    "ffn_gate_inp.scale": table.tensor("router.scale"),
    "ffn_down_exps.scale": table.tensor("router.per_expert_scale"),
    "ffn_gate_up_exps": table.TableRow((Stored((_GATE_UP,)),), optional=True),
    "ffn_gate_exps": _GATE,
    "ffn_up_exps": _UP,
    "ffn_down_exps": table.tensor("experts.down_proj", f"{_SWITCH}.down_proj.weight"),
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
}


def _table(config: ModelConfig, values: Values) -> table.Table:
    layers = None
    if values.flag("attention_k_eq_v"):
        layers = {index for index in range(config.num_layers) if config.window_of(index, 1)}
    value = table.TableRow((Stored(("self_attn.v_proj.weight",)),), layers=layers)
    return {
        "attn_norm": "input_layernorm",
        **{name: value if name == "attn_v" else _ATTENTION[name] for name in _ORDER},
        **FEED_FORWARD,
        **_EXPERTS,
        **LAYER_INPUT,
        "layer_output_scale": table.tensor("layer_scalar"),
    }


def _keys(config: ModelConfig, values: Values) -> Keys:
    if values.has("use_bidirectional_attention") and (
        values.text("use_bidirectional_attention", "") != "vision"
    ):
        raise UnsupportedError(
            f"{values.source}: use_bidirectional_attention is "
            f"{shown(values.values['use_bidirectional_attention'])}; trinity reads "
            "generative models"
        )
    rows = values.size("vocab_size_per_layer_input", "vocab_size", config.vocab_size)
    if _layer_inputs(values) and rows != config.vocab_size:
        raise UnsupportedError(
            f"{values.source}: vocab_size_per_layer_input is {rows} and vocab_size "
            f"{config.vocab_size}; in GGUF they are the same"
        )
    head_dim, kv_heads = _full_heads(config, values)
    keys: dict[str, object] = {
        "head_dim": head_dim,
        "value_dim": head_dim,
        "rope_dim": head_dim,
        "head_dim_swa": config.head_dim,
        "value_dim_swa": config.head_dim,
        "rope_dim_swa": config.head_dim,
        "shared_kv_layers": config.num_layers - first_shared(config, values),
        "per_layer_input_size": _layer_inputs(values),
        **softcap_keys(values),
    }
    if kv_heads != config.num_kv_heads:
        heads = [_heads(config, values, layer)[1] for layer in range(config.num_layers)]
        keys["num_kv_heads"] = np.array(heads, np.int32)
    widths = _widths(config, values)
    if set(widths) != {config.intermediate_size}:
        keys["intermediate_size"] = np.array(widths, np.int32)
    return keys


def unused(config: ModelConfig, values: Values) -> str:
    """Projections of layers that read other layers' keys and values."""
    layers = "|".join(map(str, range(first_shared(config, values), config.num_layers)))
    return rf"model\.layers\.(?:{layers})\.self_attn\.(?:k_proj|v_proj|k_norm)\.weight"


_DEFAULTS: dict[str, object] = {
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
}
_FAMILY = Family(
    classes={"Gemma4ForCausalLM": "gemma4"},
    wrappers={"Gemma4ForConditionalGeneration": "gemma4"},
    activations=(_TANH,),
    layer=_table,
    ends=ENDS,
    keys=_keys,
    unused=unused,
    tokenizer="gemma4",
    windows=WindowTerms(6, gguf="layers"),
    defaults=_DEFAULTS,
    activation="hidden_activation",
    experts=ExpertTerms(
        ("num_experts", "num_local_experts"), used="top_k_experts", switch="enable_moe_block"
    ),
    rope_types=("proportional",),
)
FAMILIES = (
    _FAMILY,
    replace(  # 12B, without experts and embeddings for each layer
        _FAMILY,
        classes={"Gemma4UnifiedForCausalLM": "gemma4"},
        wrappers={"Gemma4UnifiedForConditionalGeneration": "gemma4"},
        defaults={**_DEFAULTS, "hidden_size_per_layer_input": 0, "sliding_window": 1024},
        experts=None,
    ),
)
