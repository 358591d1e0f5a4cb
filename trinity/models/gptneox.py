"""gptneox (GPT-NeoX, Pythia, Dolly): LayerNorm, biases everywhere, the exact GELU.

Attention and feed-forward are parallel, each after its own norm, or sequential. Part of each head
rotates. Checkpoints store a head's query, key and values one after the other.
Source: llama.cpp src/models/gptneox.cpp; transformers' GPTNeoX.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads
from trinity.formats.huggingface.stored import Stored, View
from trinity.formats.huggingface.table import Table, TableRow, at
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    ffn_norm = blocks.norm(config, "x", "ffn_norm", "ffn_input", kind="layer")
    return [
        blocks.norm(config, "x", "attn_norm", "h", kind="layer"),
        *([ffn_norm] if config.parallel_residual else []),
        *blocks.projections(config, has),
        *blocks.plain_attention(config),
        blocks.attention_output(config),
        *([] if config.parallel_residual else [ffn_norm]),
        *blocks.feed_forward(config, "gelu_erf", "ffn_input", form="up"),
    ]


ARCHITECTURES = (Architecture(("gptneox",), _layer, rope_halves=True, norm="layer"),)

# -- In transformers' checkpoints --

_QKV = "attention.query_key_value"


def _table(config: ModelConfig, values: Values) -> Table:
    def rows_of(index: int) -> View:
        def view(array: NDArray[Any]) -> NDArray[Any]:
            return array.reshape(config.num_heads, 3, config.head_dim, -1)[:, index]

        return view

    parts = tuple(rows_of(index) for index in range(3))
    return {
        "attn_norm": at("input_layernorm", bias=True),
        **{
            f"attn_qkv.{kind}": TableRow((Stored((f"{_QKV}.{kind}",), parts=parts),))
            for kind in ("weight", "bias")
        },
        "attn_output": at("attention.dense", bias=True),
        "ffn_norm": at("post_attention_layernorm", bias=True),
        "ffn_up": at("mlp.dense_h_to_4h", bias=True),
        "ffn_down": at("mlp.dense_4h_to_h", bias=True),
    }


def _keys(config: ModelConfig, values: Values) -> Keys:
    check_even_heads(config, values)
    parallel = values.flag("use_parallel_residual", True)
    return {"parallel_residual": parallel, "num_kv_heads": config.num_heads}


FAMILY = Family(
    classes={"GPTNeoXForCausalLM": "gptneox"},
    activations=("gelu",),
    layer=_table,
    ends={"token_embd": "embed_in", "output_norm": at("final_layer_norm", bias=True)},
    keys=_keys,
    renames=(
        ("gpt_neox.layers.", "model.layers."), ("gpt_neox.", ""), ("embed_out.", "lm_head."),
    ),
    # Tables that old checkpoints have in addition to the weights.
    unused=r"model\.layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\..*)",
    defaults={
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-5,
            "partial_rotary_factor": 0.25,
            "tie_word_embeddings": False,
        },
        epsilon="layer_norm_eps",
        partial_rope=True,
        older={"partial_rotary_factor": "rotary_pct", "rope_theta": "rotary_emb_base"},
)  # fmt: skip
