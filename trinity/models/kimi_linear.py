"""kimi-linear (Kimi Linear 48B-A3B): delta attention with a decay for each key, latent attention.

Three of four layers have delta attention (KDA), the others DeepSeek's latent attention without
rotation. Layers without key heads in the file are those of the first kind. Experts are DeepSeek's.
The norms of latents and of heads have their own epsilon, as in transformers; llama.cpp uses the
model's.
Source: llama.cpp src/models/kimi-linear.cpp, conversion/kimi_linear.py; transformers' KimiLinear.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface import mixture
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.recurrent import decay, layer_kinds
from trinity.formats.huggingface.stored import Stored, part
from trinity.formats.huggingface.table import Table, TableRow, at, experts, gated, tensor
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, deepseek2, expert_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Gated, Linear, Norm, Operation, Product
from trinity.models.recurrent_operations import CausalConv, ChannelDecay, ChannelDeltaRule

_L2_EPS = 1e-6


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    if config.kv_heads_of(index):
        attention = deepseek2.attention(config, has, None)
    else:
        attention = _delta_attention(config)
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *attention,
        blocks.norm(config, "x", "ffn_norm", "h"),
        *expert_blocks.after_dense_layers(config, index, has, gating="sigmoid", normalize=True),
    ]


def _delta_attention(config: ModelConfig) -> list[Operation]:
    heads, dim, hidden = config.num_heads, config.kda_head_dim, config.hidden_size
    inner = heads * dim
    products = (
        *(Product(f"attn_{one}", one, inner) for one in "qkv"),
        Product("ssm_f_a", "decay_latent", dim),
        Product("ssm_g_a", "gate_latent", dim),
        Product("ssm_beta", "beta", heads),
    )
    # Queries and keys get length 1: an RMS norm without the mean.
    unit = {"factor": dim**-0.5, "eps": _L2_EPS / dim}
    return [
        Linear("h", hidden, products),
        *(
            CausalConv(one, f"ssm_conv1d_{one}", inner, config.kda_conv_kernel, "silu", nested=True)
            for one in "qkv"
        ),
        Linear("decay_latent", dim, (Product("ssm_f_b", "decay", inner),)),
        ChannelDecay("decay", heads, dim),
        *(Norm(one, "", one, dim, heads, **unit) for one in "qk"),
        ChannelDeltaRule("q", "k", "v", "beta", "decay", "o", heads, dim, dim, dim**-0.5),
        Norm("o", "ssm_norm", "o", dim, heads),
        Linear("gate_latent", dim, (Product("ssm_g_b", "z", inner),)),
        Gated("sigmoid", inner, gate="z", up="o"),
        Linear("z", inner, (Product("attn_output", "x", hidden),), add=True),
    ]


ARCHITECTURES = (
    Architecture(
        ("kimi-linear",), _layer, rope_halves=False, mixed=True,
        needs=("latent", "experts", "kda_head_dim", "kda_conv_kernel"),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

# transformers' names of keys, and the checkpoint's.
_OWN_NAMES = {
    "max_position_embeddings": "model_max_length",
    "norm_topk_prob": "moe_renormalize",
    "n_group": "num_expert_group",
    "num_experts_per_tok": "num_experts_per_token",
    "n_shared_experts": "num_shared_experts",
}


def _nested(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape(len(array), 1, -1)


def _convolution(number: int, name: str) -> TableRow:
    """Return a convolution, which transformers saves with the two others."""

    def view(array: NDArray[Any]) -> NDArray[Any]:
        return _nested(part(number, 3)(array.reshape(len(array), -1)))

    together = Stored(("self_attn.conv1d.weight",), view)
    return TableRow((Stored((f"self_attn.{name}_conv1d.weight",), _nested), together))


def _table(config: ModelConfig, values: Values) -> Table:
    latent = deepseek2.attention_table(config)
    head_norm = "self_attn.o_norm.weight"
    return {
        "attn_norm": "input_layernorm",
        **latent,
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        **{f"ssm_conv1d_{name}": _convolution(i, name) for i, name in enumerate("qkv")},
        "ssm_f_a": "self_attn.f_a_proj",
        "ssm_f_b": "self_attn.f_b_proj",
        "ssm_g_a": "self_attn.g_a_proj",
        "ssm_g_b": "self_attn.g_b_proj",
        "ssm_beta": "self_attn.b_proj",
        "ssm_a.": _decay(),
        "ssm_dt.bias": tensor("self_attn.dt_bias"),
        "ssm_norm": tensor(head_norm),
        "ffn_norm": "post_attention_layernorm",
        # transformers 5 saves dense layers under the name of those with experts.
        **{
            f"ffn_{name}": at(f"mlp.{name}_proj", f"block_sparse_moe.{name}_proj")
            for name in ("gate", "up", "down")
        },
        "ffn_gate_inp": "block_sparse_moe.gate",
        "exp_probs_b.bias": tensor("block_sparse_moe.gate.e_score_correction_bias"),
        **experts("block_sparse_moe.experts", gate="w1", up="w3", down="w2"),
        **gated("block_sparse_moe.shared_experts", suffix="_shexp"),
    }


def _decay() -> TableRow:
    return decay("self_attn", lambda array: array.reshape(-1, 1))


def _keys(config: ModelConfig, values: Values) -> Keys:
    refuse_other(
        values,
        {
            "moe_router_activation_func": (None, "sigmoid"),
            "norm_topk_prob": (True,),
            "q_lora_rank": (None,),
            "attention_bias": (None, False),
            "mla_use_nope": (None, True),
            "moe_layer_freq": (None, 1),
        },
    )
    latent, rotated = deepseek2.latent_sizes(config, values)
    delta = values.inner("linear_attn_config")
    heads = delta.size("num_heads", "num_heads", values.size("linear_num_heads", "num_heads", 32))
    if heads != config.num_heads:
        raise UnsupportedError(
            f"{values.source}: linear_attn_config has {heads} heads and num_attention_heads is "
            f"{config.num_heads}; in GGUF they are the same"
        )
    size = values.size("linear_head_dim", "kda_head_dim", 128)
    taps = values.size("linear_conv_kernel_dim", "kda_conv_kernel", 4)
    recurrent = _recurrent(config, values, delta)
    keys = mixture.keys_of_experts(config, values, sigmoid=True)
    dense = values.size("first_k_dense_replace", "first_dense_layers", 1, smallest=0)
    return {
        **keys,
        "num_kv_heads": np.array([not state for state in recurrent], np.int32),
        "head_dim": latent.kv_lora_rank + rotated,
        "value_dim": latent.kv_lora_rank,
        "rope_dim": rotated,
        "latent_key_dim": latent.key_dim,
        "latent_value_dim": latent.value_dim,
        "kv_lora_rank": latent.kv_lora_rank,
        "kda_head_dim": delta.size("head_dim", "kda_head_dim", size),
        "kda_conv_kernel": delta.size("short_conv_kernel_size", "kda_conv_kernel", taps),
        "first_dense_layers": mixture.listed_dense_layers(config, values, dense),
    }


def _recurrent(config: ModelConfig, values: Values, delta: Values) -> tuple[bool, ...]:
    """Return which layers have delta attention; a checkpoint counts layers from 1."""
    count = config.num_layers
    if values.has("layer_types"):
        kinds = {"linear_attention": True, "full_attention": False}
        return layer_kinds(config, values, kinds)
    if not (delta.has("full_attn_layers") and delta.has("kda_layers")):
        return tuple(not layer or layer % 4 != 0 for layer in range(count))
    full, own = delta.values["full_attn_layers"], delta.values["kda_layers"]
    if (
        not isinstance(full, list)
        or not isinstance(own, list)
        or any(type(layer) is not int for layer in [*full, *own])
        or sorted([*full, *own]) != list(range(1, count + 1))
    ):
        raise delta.error("kda_layers", "must have the layers that full_attn_layers has not")
    return tuple(layer + 1 not in full for layer in range(count))


FAMILY = Family(
    classes={"KimiLinearForCausalLM": "kimi-linear"},
    layer=_table,
    keys=_keys,
    unused=mixture.unused,
    rope_types=(),
    older=_OWN_NAMES,
    defaults={
        "max_position_embeddings": 1_048_576,
        "rms_norm_eps": 1e-5,
        "head_dim": 72,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "moe_intermediate_size": 1024,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.446,
        "tie_word_embeddings": False,
    },
    experts=ExpertTerms(("num_local_experts", "num_experts")),
)
