"""hunyuan-dense, hunyuan_vl (its text) and hunyuan-moe: heads are normalized after the rotation.

hunyuan-moe has a shared expert in addition to those that a token chooses.
Source: llama.cpp src/models/hunyuan-vl.cpp and hunyuan-moe.cpp; transformers' HunYuanDenseV1 and
HunYuanMoEV1.

Checkpoints name a factor alpha, by which the base of rotations grows; GGUF has the product, and a
context of 262,144 tokens instead of the one in config.json.
Source: llama.cpp conversion/hunyuan.py.
"""

from __future__ import annotations

import math

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.config import ExpertTerms, alike
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.rope import rope_parameters, rope_type
from trinity.formats.huggingface.table import Table, attention, experts, gated, pre_norm_layer
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Attention, Copy, Norm, Operation, Rope


def layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    """A layer whose heads are normalized after the rotation."""
    return [
        *blocks.attention_branch(config, has, _attention(config), head_norms=False),
        *_feed_forward(config, has),
    ]


def _attention(config: ModelConfig) -> list[Operation]:
    """Rotate the heads of queries and keys together, normalize them, then store the keys."""
    heads, kv_heads, dim = config.num_heads, config.num_kv_heads, config.head_dim
    return [
        Copy("k", "q", kv_heads, dim, dim, dim, out_first=heads * dim),
        Rope(heads + kv_heads, kv_heads, dim, blocks.rotation_of(config), stores=False),
        Copy("q", "k", kv_heads, dim, dim, dim, x_first=heads * dim),
        Norm("q", "attn_q_norm", "q", dim, heads),
        Norm("k", "attn_k_norm", "k", dim, kv_heads),
        Rope(heads, kv_heads, dim, None),
        Attention(heads, kv_heads, dim, 1 / math.sqrt(dim)),
    ]


def _feed_forward(config: ModelConfig, has: Has) -> list[Operation]:
    if config.experts is None:
        return blocks.feed_forward(config, "silu")
    return [
        *expert_blocks.routed(config, has, "silu", size=config.intermediate_size),
        *expert_blocks.shared_expert(config, "silu", size=config.intermediate_size),
    ]


ARCHITECTURES = (
    Architecture(("hunyuan-dense", "hunyuan_vl"), layer, rope_halves=True),
    Architecture(("hunyuan-moe",), layer, rope_halves=True, needs=("experts",)),
)

# -- In transformers' checkpoints --

_CONTEXT = 1 << 18
_ATTENTION: Table = {
    **attention(bias="attention_bias", output_bias="attention_bias"),
    "attn_q_norm": "self_attn.query_layernorm",
    "attn_k_norm": "self_attn.key_layernorm",
}
_EXPERTS: Table = {
    "ffn_gate_inp": "mlp.gate.wg",
    **experts("mlp.experts"),
    **gated("mlp.shared_mlp", suffix="_shexp"),
}
_TYPES = ("linear", "llama3", "yarn", "dynamic")
_DEFAULTS: dict[str, object] = {"rms_norm_eps": 1e-5}


def _keys(config: ModelConfig, values: Values) -> Keys:
    if rope_type(values) != "dynamic":
        return {}
    if not rope_parameters(values).has("alpha"):
        raise UnsupportedError(
            f"{values.source}: RoPE scaling of type 'dynamic' without alpha depends on the length "
            "of a text, which is not supported"
        )
    return {"context_length": _CONTEXT}


def _expert_keys(config: ModelConfig, values: Values) -> Keys:
    # transformers' class ignores these keys.
    known = {"moe_intermediate_size": config.intermediate_size, "num_shared_expert": 1}
    for key, expected in known.items():
        if values.has(key) and alike(values, key).values[key] != expected:
            raise values.error(key, f"must be {expected} in each layer")
    return {
        **_keys(config, values),
        "num_shared_experts": 1,
        "shared_intermediate_size": config.intermediate_size,
    }


FAMILIES = (
    Family(
        classes={"HunYuanDenseV1ForCausalLM": "hunyuan-dense"},
        layer=pre_norm_layer(_ATTENTION, gated()),
        keys=_keys,
        rope_types=_TYPES,
        defaults=_DEFAULTS,
    ),
    Family(
        classes={"HunYuanMoEV1ForCausalLM": "hunyuan-moe"},
        layer=pre_norm_layer(_ATTENTION, _EXPERTS),
        keys=_expert_keys,
        rope_types=_TYPES,
        defaults=_DEFAULTS,
        experts=ExpertTerms(("num_experts",), width="intermediate_size", by_layer=True),
        older={"num_experts_per_tok": "moe_topk"},  # transformers takes the first if it exists,
    ),
)
