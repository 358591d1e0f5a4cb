"""stablelm (StableLM 1 and 2): LayerNorm, gated SiLU; part of each head rotates.

The 12B has norms over heads, with a separate weight per head, and parallel attention and feed-
forward after one norm.
Source: llama.cpp src/models/stablelm.cpp; transformers' StableLm.
"""

from __future__ import annotations

from trinity.config import ModelConfig
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import check_even_heads
from trinity.formats.huggingface.table import EMBEDDING, Table, at, attention, gated
from trinity.formats.huggingface.values import Values
from trinity.models import blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Norm, Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    norms: list[Operation] = [
        Norm(name, f"attn_{name}_norm", name, config.head_dim, heads, kind="layer", per_group=True)
        for name, heads in (("q", config.num_heads), ("k", config.num_kv_heads))
        if has(f"attn_{name}_norm")
    ]
    ffn_norm = blocks.norm(config, "x", "ffn_norm", "h", kind="layer")
    return [
        blocks.norm(config, "x", "attn_norm", "h", kind="layer"),
        *blocks.projections(config, has, head_norms=False),
        *norms,
        *blocks.plain_attention(config),
        blocks.attention_output(config),
        *([ffn_norm] if has("ffn_norm") else []),
        *blocks.feed_forward(config, "silu"),
    ]


ARCHITECTURES = (Architecture(("stablelm",), _layer, rope_halves=True, norm="layer"),)

# -- In transformers' checkpoints --


def _table(config: ModelConfig, values: Values) -> Table:
    norm = {"ffn_norm": at("post_attention_layernorm", bias=True)}
    return {
        "attn_norm": at("input_layernorm", bias=True),
        **attention(bias="use_qkv_bias"),
        **{
            f"attn_{name}_norm": at(f"self_attn.{name}_layernorm.norms.{{}}", when="qk_layernorm")
            for name in ("q", "k")
        },
        **({} if values.flag("use_parallel_residual") else norm),
        **gated(),
    }


def _keys(config: ModelConfig, values: Values) -> Keys:
    check_even_heads(config, values)
    return {"parallel_residual": values.flag("use_parallel_residual")}


FAMILY = Family(
    classes={"StableLmForCausalLM": "stablelm", "StableLMEpochForCausalLM": "stablelm"},
    layer=_table,
    ends={**EMBEDDING, "output_norm": at("model.norm", bias=True)},
    keys=_keys,
    epsilon="layer_norm_eps",
    partial_rope=True,
    defaults={
        "layer_norm_eps": 1e-5,
        "num_key_value_heads": 32,
        "partial_rotary_factor": 0.25,
        "tie_word_embeddings": False,
    },
    older={"partial_rotary_factor": "rope_pct"},
)
