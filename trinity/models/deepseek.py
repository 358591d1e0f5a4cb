"""deepseek (DeepSeek MoE 16B, the first version) and bailingmoe (Ling Lite and Plus): llama.

Layers have experts by softmax and a shared one; the first layers may be dense. The weights of
experts are normalized in Ling alone.
Source: llama.cpp src/models/deepseek.cpp and bailingmoe.cpp, conversion/deepseek.py and
bailingmoe.py; the published classes.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads, refuse_other
from trinity.formats.huggingface.stored import Stored, View
from trinity.formats.huggingface.table import Table, TableRow, at, attention, pre_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.llama import attention_branch
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        *attention_branch(config, index, has),
        *expert_blocks.after_dense_layers(config, index, has),
    ]


ARCHITECTURES = (
    Architecture(("deepseek", "bailingmoe"), _layer, rope_halves=False, needs=("experts",)),
)

# -- In published checkpoints --

_LAYER = pre_norm_layer(
    attention(bias="attention_bias", output_bias="attention_bias", permuted=True),
    mixture.FEED_FORWARD,
)


def _ling_layer(config: ModelConfig, values: Values) -> Table:
    """Q, K and V are the rows of one matrix, one after the other."""
    queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))

    def part(first: int, count: int) -> View:
        def view(array: NDArray[Any]) -> NDArray[Any]:
            return array[first : first + count]

        return view

    def rows(first: int, count: int, *, permuted: bool = False) -> TableRow:
        form = Stored(("attention.query_key_value.weight",), part(first, count))
        return TableRow((form,), permuted=permuted)

    return pre_norm_layer(
        {
            "attn_q": rows(0, queries, permuted=True),
            "attn_k": rows(queries, keys, permuted=True),
            "attn_v": rows(queries + keys, keys),
            "attn_output": "attention.dense",
        },
        mixture.FEED_FORWARD,
    )


def _keys(config: ModelConfig, values: Values) -> Keys:
    check_even_heads(config, values)
    refuse_other(
        values,
        {
            "moe_layer_freq": (None, 1),
            "scoring_func": (None, "softmax"),
            "norm_topk_prob": (None, False),
            "routed_scaling_factor": (None, 1, 1.0),
        },
    )
    return mixture.keys_of_experts(config, values, sigmoid=False, grouped=False)


def _ling_keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "first_k_dense_replace": (None, 0),
            "use_qkv_bias": (None, False),
            "use_bias": (None, False),
            "norm_head": (None, False),
        },
    )
    return mixture.keys_of_experts(config, values, sigmoid=False, grouped=False)


FAMILIES = (
    Family(
        classes={"DeepseekForCausalLM": "deepseek"},
        layer=_LAYER,
        keys=_keys,
        defaults={"norm_topk_prob": False, "tie_word_embeddings": False},
        experts=ExpertTerms(("n_routed_experts",)),
    ),
    Family(
        classes={"BailingMoeForCausalLM": "bailingmoe"},
        layer=_ling_layer,
        ends={
            "token_embd": at("model.word_embeddings", "model.embed_tokens"),
            "output_norm": "model.norm",
        },
        keys=_ling_keys,
        defaults={"norm_topk_prob": True, "tie_word_embeddings": False},
        experts=ExpertTerms(("num_experts",)),
        older={"n_shared_experts": "num_shared_experts"},
    ),
)
