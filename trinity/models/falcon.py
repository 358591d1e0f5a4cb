"""falcon: parallel attention and feed-forward, LayerNorm, the exact GELU.

Each branch has its own norm (40B, 180B), or both share one (7B, 11B). Checkpoints store a group's
queries, its key and its value one after the other.
Source: llama.cpp src/models/falcon.cpp; transformers' Falcon.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads, refuse_other
from trinity.formats.huggingface.stored import Stored, View
from trinity.formats.huggingface.table import Table, TableRow, at
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    source = "attn_input" if has("attn_norm_2") else "h"
    second = blocks.norm(config, "x", "attn_norm_2", source, kind="layer")
    return [
        blocks.norm(config, "x", "attn_norm", "h", kind="layer"),
        *([second] if has("attn_norm_2") else []),
        *blocks.projections(config, has, source),
        *blocks.plain_attention(config),
        blocks.attention_output(config),
        *blocks.feed_forward(config, "gelu_erf", form="up"),
    ]


ARCHITECTURES = (Architecture(("falcon",), _layer, rope_halves=True, norm="layer"),)

# -- In transformers' checkpoints --


def _kv_heads(config: ModelConfig, values: Values) -> int:
    """Return the heads of keys. Source: transformers' FalconAttention."""
    if values.flag("new_decoder_architecture"):
        return values.size("num_kv_heads", "num_kv_heads", config.num_heads)
    return 1 if values.flag("multi_query", True) else config.num_heads


def _table(config: ModelConfig, values: Values) -> Table:
    groups = _kv_heads(config, values)
    shared = config.num_heads // groups

    def part(first: int, last: int) -> View:
        def view(array: NDArray[Any]) -> NDArray[Any]:
            return array.reshape(groups, shared + 2, config.head_dim, -1)[:, first:last]

        return view

    parts = part(0, shared), part(shared, shared + 1), part(shared + 1, shared + 2)
    two = values.flag("new_decoder_architecture") and (
        values.size("num_ln_in_parallel_attn", "num_layers", 2) == 2
    )
    norms = {"attn_norm": at("input_layernorm", bias=True)}
    if two:
        norms = {"attn_norm": at("ln_mlp", bias=True), "attn_norm_2": at("ln_attn", bias=True)}
    return {
        **norms,
        "attn_qkv": TableRow((Stored(("self_attention.query_key_value.weight",), parts=parts),)),
        "attn_output": "self_attention.dense",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    }


def _keys(config: ModelConfig, values: Values) -> Keys:
    check_even_heads(config, values)
    refuse_other(
        values,
        {
            "alibi": (None, False),
            "bias": (None, False),
            "parallel_attn": (None, True),
            "num_ln_in_parallel_attn": (None, 1, 2),
        },
    )
    kv_heads = _kv_heads(config, values)
    if config.num_heads % kv_heads:
        raise values.error("num_kv_heads", f"does not divide num_heads {config.num_heads}")
    return {"num_kv_heads": kv_heads, "tensor_data_layout": "jploski"}


FAMILY = Family(
    classes={"FalconForCausalLM": "falcon", "RWForCausalLM": "falcon"},
    activations=("gelu",),
    layer=_table,
    ends={"token_embd": "word_embeddings", "output_norm": at("ln_f", bias=True)},
    keys=_keys,
    renames=(("transformer.h.", "model.layers."), ("transformer.", "")),
    activation="activation",
    epsilon="layer_norm_epsilon",
    feed_forward_times=4,
    defaults={
        "activation": "gelu",
        "layer_norm_epsilon": 1e-5,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    },
    older={
        "hidden_size": "n_embed",
        "intermediate_size": "ffn_hidden_size",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
        "num_kv_heads": "n_head_kv",
    },
)
