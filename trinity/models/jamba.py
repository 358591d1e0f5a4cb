"""jamba: Mamba-1 in most layers, attention without rotation in the others, experts in some.

Source: llama.cpp src/models/jamba.cpp; transformers' Jamba.
"""

from __future__ import annotations

from dataclasses import replace

from trinity.config import ModelConfig
from trinity.formats.huggingface import recurrent, table
from trinity.formats.huggingface.config import ExpertTerms
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.stored import Stored
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, expert_blocks, mamba_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *_mixer(config, index, has),
        blocks.norm(config, "x", "ffn_norm", "h"),
        *_feed_forward(config, has),
    ]


def _mixer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    if not config.kv_heads_of(index):
        return mamba_blocks.mamba_1(config, has)
    config = replace(config, num_kv_heads=config.kv_heads_of(index))
    return [
        *blocks.projections(config, has),
        *blocks.attention(config, None),
        blocks.attention_output(config),
    ]


def _feed_forward(config: ModelConfig, has: Has) -> list[Operation]:
    if config.experts is None or not has("ffn_gate_inp"):
        return blocks.feed_forward(config, "silu")
    return expert_blocks.routed(config, has, "silu", size=config.intermediate_size, normalize=False)


ARCHITECTURES = (Architecture(("jamba",), _layer, rope_halves=False, needs=("ssm",), mixed=True),)

# -- In transformers' checkpoints --


def _table(config: ModelConfig, values: Values) -> table.Table:
    period = values.size("expert_layer_period", "expert_layer_step", 2)
    offset = values.size("expert_layer_offset", "num_layers", 1, smallest=0)
    sparse = [layer for layer in range(config.num_layers) if layer % period == offset]
    return {
        "attn_norm": "input_layernorm",
        **recurrent.mamba_1_table("mamba", "mamba_conv_bias", norms=True),
        **table.attention(),
        "ffn_norm": "pre_ff_layernorm",
        **table.gated("feed_forward"),
        # Layers of experts are those with this tensor.
        "ffn_gate_inp": table.TableRow((Stored(("feed_forward.router.weight",)),), layers=sparse),
        **table.experts("feed_forward.experts"),
    }


def _keys(config: ModelConfig, values: Values) -> Keys:
    recurrent.check_plain(values, "mamba_proj_bias")
    period = values.size("attn_layer_period", "num_layers", 8)
    offset = values.size("attn_layer_offset", "num_layers", 4, smallest=0)
    without = tuple(layer % period != offset for layer in range(config.num_layers))
    return {
        **recurrent.mamba_1_states(
            config, values, "mamba_d_conv", "mamba_d_state", "mamba_expand", "mamba_dt_rank"
        ),
        "num_kv_heads": recurrent.kv_heads(config, without),
        "expert_intermediate_size": None,  # feed_forward_length is an expert's
        **dict.fromkeys(("rope_dim", "rope_theta")),
    }


FAMILY = Family(
    classes={"JambaForCausalLM": "jamba"},
    layer=_table,
    ends={"token_embd": "model.embed_tokens", "output_norm": "model.final_layernorm"},
    keys=_keys,
    defaults={
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-6,
        "mamba_conv_bias": True,
        "tie_word_embeddings": False,
        "num_experts": 16,
        "num_experts_per_tok": 2,
    },
    experts=ExpertTerms(("num_experts", "num_local_experts"), width="intermediate_size"),
)
