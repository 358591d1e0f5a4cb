"""falcon-h1: attention and Mamba-2 side by side in every layer, on the same normalized input.

The multipliers of the model are part of the file's weights.
Source: llama.cpp src/models/falcon-h1.cpp; transformers' FalconH1.
"""

from __future__ import annotations

from trinity.config import ModelConfig, SSMConfig
from trinity.errors import UnsupportedError
from trinity.formats.config_limits import field_values
from trinity.formats.huggingface import table
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.recurrent import check_plain, checked, mamba_table
from trinity.formats.huggingface.stored import Stored, as_it_is, rows
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, mamba_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    # llama.cpp's converter omits ".weight" there.
    ffn_norm = "ffn_norm" if has("ffn_norm") else "ffn_norm."
    return [
        blocks.norm(config, "x", "attn_norm", "h"),
        *blocks.projections(config, has),
        *blocks.attention(config, blocks.rotation_of(config), scale=config.attention_scale),
        blocks.attention_output(config),
        *mamba_blocks.mamba(config, has),
        blocks.norm(config, "x", ffn_norm, "h"),
        *blocks.feed_forward(config, "silu"),
    ]


ARCHITECTURES = (Architecture(("falcon-h1",), _layer, rope_halves=True, needs=("ssm",)),)

# -- In transformers' checkpoints --

# -- Falcon-H1 -----------------------------------------------------------------------------------


def _falcon_states(config: ModelConfig, values: Values) -> SSMConfig:
    check_plain(values, "mamba_proj_bias", "projectors_bias", "attention_bias", "mlp_bias")
    inner = values.size("mamba_expand", "ssm_expand", 2) * config.hidden_size
    if values.has("mamba_d_ssm"):
        inner = values.size("mamba_d_ssm", "ssm_inner_size")
    return checked(
        values,
        "mamba_n_heads",
        SSMConfig(
            values.size("mamba_d_conv", "ssm_conv_kernel", 4),
            inner,
            values.size("mamba_d_state", "ssm_state_size", 256),
            values.size("mamba_n_groups", "ssm_num_groups", 1),
            values.size("mamba_n_heads", "ssm_num_heads", 128),
        ),
    )


def _factor(values: Values, key: str) -> float:
    return values.real(key, "multiplier", 1.0)


def _times(module: str, *factors: tuple[float, ...], ends: tuple[int, ...] = ()) -> table.TableRow:
    """A weight whose rows are multiplied by factors; ``ends`` are the rows where they change."""
    name = (f"{module}.weight",)
    if all(factor == 1.0 for of_part in factors for factor in of_part):
        return table.TableRow((Stored(name),))
    views = tuple(rows(first, last) for first, last in zip((0, *ends), (*ends, None), strict=True))
    return table.TableRow((Stored(name, parts=views if ends else (as_it_is,)),), factors=factors)


def _falcon_ends(config: ModelConfig, values: Values) -> table.Table:
    return {
        "token_embd": _times("model.embed_tokens", (_factor(values, "embedding_multiplier"),)),
        "output_norm": "model.final_layernorm",
    }


def _falcon_layer(config: ModelConfig, values: Values) -> table.Table:
    into = _factor(values, "attention_in_multiplier")
    out, key = _factor(values, "attention_out_multiplier"), _factor(values, "key_multiplier")
    ends: tuple[int, ...] = ()
    if config.ssm is not None:
        inner, keys = config.ssm.inner_size, config.ssm.keys_size
        ends = (inner, 2 * inner, 2 * inner + keys, 2 * inner + 2 * keys)
    parts = values.reals("ssm_multipliers", "multiplier", 5)
    whole = _factor(values, "ssm_in_multiplier")
    gate, down = values.reals("mlp_multipliers", "multiplier", 2)
    return {
        "attn_norm": "input_layernorm",
        "attn_q": _times("self_attn.q_proj", (into,)),
        "attn_k": _times("self_attn.k_proj", (key, into)),
        "attn_v": _times("self_attn.v_proj", (into,)),
        "attn_output": _times("self_attn.o_proj", (out,)),
        **mamba_table(config, "mamba", "mamba_conv_bias", "mamba_rms_norm"),
        "ssm_in": _times("mamba.in_proj", *((whole, part) for part in parts), ends=ends),
        "ssm_out": _times("mamba.out_proj", (_factor(values, "ssm_out_multiplier"),)),
        "ffn_norm.": "pre_ff_layernorm",
        "ffn_gate": _times("feed_forward.gate_proj", (gate,)),
        "ffn_up": "feed_forward.up_proj",
        "ffn_down": _times("feed_forward.down_proj", (down,)),
    }


def _falcon_keys(config: ModelConfig, values: Values) -> Keys:
    if values.flag("mamba_rms_norm") and values.flag("mamba_norm_before_gate", True):
        raise UnsupportedError(
            f"{values.source}: mamba_norm_before_gate is true or missing; GGUF cannot say so: "
            "trinity reads this class with the gate before the norm, where it is false"
        )
    return {**field_values(_falcon_states(config, values)), "rope_dim": None}


FAMILY = Family(
    classes={"FalconH1ForCausalLM": "falcon-h1"},
    layer=_falcon_layer,
    ends=_falcon_ends,
    keys=_falcon_keys,
    defaults={
        "mlp_multipliers": [1.0, 1.0],
        "ssm_multipliers": [1.0] * 5,
        "mamba_d_ssm": 1024,
        "mamba_conv_bias": True,
        "rms_norm_eps": 1e-5,
    },
    head_factor=lambda values: _factor(values, "lm_head_multiplier"),
)
