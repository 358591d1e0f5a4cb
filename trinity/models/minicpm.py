"""minicpm (MiniCPM 1, 2 and 4, BitCPM4) and minicpm3: llama, and latent attention, with scales.

The scales multiply embeddings, branches and logits. minicpm has granite's layer, minicpm3 the
expanded latent attention of deepseek2; its scales are constants.
Source: llama.cpp src/models/minicpm.cpp and minicpm3.cpp; transformers' MiniCPM3 and Granite, and
the class MiniCPMForCausalLM in openbmb's checkpoints.

Old GGUF files lack the scales. Their logits are divided by hidden_size / 256 here; llama.cpp
multiplies them by it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from trinity.config import ModelConfig
from trinity.errors import UnsupportedError
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import LONG_ROPE, long_rope_keys
from trinity.formats.huggingface.table import Table, attention, gated, pre_norm_layer
from trinity.formats.huggingface.values import Values, shown
from trinity.models import blocks, deepseek2, granite
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation

_EMBEDDING_SCALE, _DEPTH_SCALE, _BASE_WIDTH = 12.0, 1.4, 256


def _residual_scale(config: ModelConfig) -> float:
    return config.residual_scale or _DEPTH_SCALE / math.sqrt(config.num_layers)


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    config = replace(config, rope_finetuned=True, residual_scale=_residual_scale(config))
    return granite.layer(config, index, has)


def _latent_layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    latent = config.latent
    if latent is None:
        raise TypeError(f"{config.architecture} has no latent attention in its configuration")
    if not config.value_dim:  # files do not say it
        latent = replace(latent, value_dim=config.hidden_size // config.num_heads)
    scale = _residual_scale(config)
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *deepseek2.expanded(config, latent, blocks.rotation_of(config), scale=scale),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *blocks.feed_forward(config, "silu", scale=scale),
    ]


ARCHITECTURES = (
    Architecture(
        ("minicpm",), _layer, rope_halves=False,
        embedding_scale=lambda config: config.embedding_scale or _EMBEDDING_SCALE,
        logit_scale=lambda config: 1 / (config.logit_scale or config.hidden_size / _BASE_WIDTH),
    ),
    Architecture(
        ("minicpm3",), _latent_layer, rope_halves=True,
        embedding_scale=lambda config: _EMBEDDING_SCALE,
        logit_scale=lambda config: _BASE_WIDTH / config.hidden_size,
        needs=("latent",),
    ),
)  # fmt: skip

# -- In transformers' checkpoints --

_LATENT: Table = {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_output": "self_attn.o_proj",
}


def _keys(config: ModelConfig, values: Values) -> Keys:
    if values.values.get("num_experts"):
        raise values.error("num_experts", "must be 0: MiniCPM with experts is not supported")
    depth = values.real("scale_depth", "residual_scale")
    base = values.size("dim_model_base", "hidden_size")
    return {
        "embedding_scale": values.real("scale_emb", "embedding_scale"),
        "residual_scale": depth / math.sqrt(config.num_layers),
        "logit_scale": config.hidden_size / base,
        **long_rope_keys(config, values),
    }


def _latent_keys(config: ModelConfig, values: Values) -> Keys:
    known = {
        "scale_emb": _EMBEDDING_SCALE, "scale_depth": _DEPTH_SCALE, "dim_model_base": _BASE_WIDTH
    }  # fmt: skip
    for key, expected in known.items():
        if values.values.get(key) != expected:
            raise UnsupportedError(
                f"{values.source}: {key} is {shown(values.values.get(key))}; GGUF files of "
                f"minicpm3 always have {expected}"
            )
    rotated = values.size("qk_rope_head_dim", "rope_dim")
    return {
        "num_kv_heads": config.num_heads,
        "head_dim": values.size("qk_nope_head_dim", "head_dim") + rotated,
        "value_dim": values.size("v_head_dim", "value_dim", config.hidden_size // config.num_heads),
        "rope_dim": rotated,
        "q_lora_rank": values.size("q_lora_rank", "q_lora_rank"),
        "kv_lora_rank": values.size("kv_lora_rank", "kv_lora_rank"),
        **long_rope_keys(config, values),
    }


FAMILIES = (
    Family(
        classes={"MiniCPMForCausalLM": "minicpm"},
        layer=pre_norm_layer(attention(permuted=True), gated()),
        keys=_keys,
        rope_types=("linear", *LONG_ROPE),
            defaults={
                "scale_emb": 1.0, "scale_depth": 1.0, "dim_model_base": 1,
                "tie_word_embeddings": True, "rms_norm_eps": 1e-6,
            },
    ),
    Family(
        classes={"MiniCPM3ForCausalLM": "minicpm3"},
        layer=pre_norm_layer(_LATENT, gated()),
        keys=_latent_keys,
        rope_types=LONG_ROPE,
            rope_size="qk_rope_head_dim",
            defaults={
                "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "q_lora_rank": 768,
                "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
                "tie_word_embeddings": True, "rms_norm_eps": 1e-5,
            },
    ),
)  # fmt: skip
