"""internlm2: llama; checkpoints have the rows of q, k and v of each key head together.

Source: llama.cpp src/models/internlm2.cpp and its conversion; the published class.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family
from trinity.formats.huggingface.keys import check_even_heads, refuse_other
from trinity.formats.huggingface.stored import Stored, View
from trinity.formats.huggingface.table import Table, TableRow
from trinity.formats.huggingface.values import Values
from trinity.models import llama
from trinity.models.architecture import Architecture

ARCHITECTURES = (Architecture(("internlm2",), llama.layer, rope_halves=False),)

# -- In transformers' checkpoints --


def _layer(config: ModelConfig, values: Values) -> Table:
    groups = config.num_kv_heads
    queries = config.num_heads // groups

    def part(first: int, last: int) -> View:
        def view(array: NDArray[Any]) -> NDArray[Any]:
            return array.reshape(groups, queries + 2, config.head_dim, -1)[:, first:last]

        return view

    def rows(first: int, last: int, *, permuted: bool = False) -> TableRow:
        form = Stored(("attention.wqkv.weight",), parts=(part(first, last),))
        return TableRow((form,), permuted=permuted)

    return {
        "attn_norm": "attention_norm",
        "attn_q": rows(0, queries, permuted=True),
        "attn_k": rows(queries, queries + 1, permuted=True),
        "attn_v": rows(queries + 1, queries + 2),
        "attn_output": "attention.wo",
        "ffn_norm": "ffn_norm",
        "ffn_gate": "feed_forward.w1",
        "ffn_up": "feed_forward.w3",
        "ffn_down": "feed_forward.w2",
    }


def _check(config: ModelConfig, values: Values) -> None:
    check_even_heads(config, values)
    refuse_other(values, {"bias": (False,)})


FAMILY = Family(
    classes={"InternLM2ForCausalLM": "internlm2"},
    layer=_layer,
    ends={"token_embd": "model.tok_embeddings", "output_norm": "model.norm"},
    check=_check,
    renames=(("output.", "lm_head."),),
    rope_types=("linear", "dynamic"),
    defaults={"bias": True, "rms_norm_eps": 1e-6, "tie_word_embeddings": False},
)
