"""gpt2: learned positions, norms with a mean, biases everywhere, GELU without a gate.

Checkpoints store matrices as (inputs, outputs).
Source: llama.cpp src/models/gpt2.cpp; transformers' GPT2.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads, refuse_other
from trinity.formats.huggingface.stored import Stored, transposed
from trinity.formats.huggingface.table import Table, TableRow, at
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import AddedRowNames, Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    attention = blocks.attention(config, None)
    return [
        *blocks.attention_branch(config, has, attention, head_norms=False, kind="layer"),
        *blocks.feed_forward(config, "gelu", form="up"),
    ]


ARCHITECTURES = (
    Architecture(
        ("gpt2",), _layer, rope_halves=True, norm="layer",
        added_rows=AddedRowNames("position_embd"),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --


def _turned(module: str) -> TableRow:
    return TableRow((Stored((f"{module}.weight",), transposed, turned=True),), bias=True)


_LAYER: Table = {
    "attn_norm": at("ln_1", bias=True),
    "attn_qkv": _turned("attn.c_attn"),
    "attn_output": _turned("attn.c_proj"),
    "ffn_norm": at("ln_2", bias=True),
    "ffn_up": _turned("mlp.c_fc"),
    "ffn_down": _turned("mlp.c_proj"),
}


def _keys(config: ModelConfig, values: Values) -> Keys:
    check_even_heads(config, values)
    refuse_other(
        values,
        {
            "scale_attn_weights": (None, True),
            "scale_attn_by_inverse_layer_idx": (None, False),
            "add_cross_attention": (None, False),
        },
    )
    return {"num_kv_heads": config.num_heads}


FAMILY = Family(
    classes={"GPT2LMHeadModel": "gpt2"},
    activations=("gelu_new", "gelu_pytorch_tanh"),
    layer=_LAYER,
    ends={"token_embd": "wte", "position_embd": "wpe", "output_norm": at("ln_f", bias=True)},
    keys=_keys,
    renames=(
        ("transformer.h.", "model.layers."),
        ("transformer.", ""),
        ("h.", "model.layers."),
    ),
    unused=r"model\.layers\.\d+\.attn\.(bias|masked_bias)",  # tables of old checkpoints
    activation="activation_function",
    epsilon="layer_norm_epsilon",
    context=("n_positions", "max_position_embeddings", "n_ctx"),
    feed_forward_times=4,
    rope_types=(),
    defaults={
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
    },
    older={
        "hidden_size": "n_embd",
        "intermediate_size": "n_inner",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
)
