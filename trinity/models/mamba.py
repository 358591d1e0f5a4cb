"""mamba and mamba2: only Mamba-1 or Mamba-2 in each layer, without attention and feed-forward.

Mamba, Falcon Mamba, Codestral Mamba.
Source: llama.cpp src/models/mamba.cpp and mamba2.cpp; transformers' Mamba, FalconMamba and Mamba2.
"""

from __future__ import annotations

from trinity.config import ModelConfig, SSMConfig
from trinity.formats.config_limits import field_values
from trinity.formats.huggingface.config import class_name_of
from trinity.formats.huggingface.family import Family, Keys
from trinity.formats.huggingface.keys import refuse_other
from trinity.formats.huggingface.recurrent import (
    check_plain,
    checked,
    mamba_1_states,
    mamba_1_table,
    mamba_table,
)
from trinity.formats.huggingface.table import Table, at
from trinity.formats.huggingface.values import Values
from trinity.models import blocks, mamba_blocks
from trinity.models.architecture import Architecture, Has
from trinity.models.operations import Operation


def _layer(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [blocks.norm(config, "x", "attn_norm", "h"), *mamba_blocks.mamba_1(config, has)]


def _layer_of_2(config: ModelConfig, index: int, has: Has) -> list[Operation]:
    return [blocks.norm(config, "x", "attn_norm", "h"), *mamba_blocks.mamba(config, has)]


ARCHITECTURES = (
    Architecture(("mamba",), _layer, rope_halves=False, needs=("ssm",), mixed=True),
    Architecture(("mamba2",), _layer_of_2, rope_halves=False, needs=("ssm",), mixed=True),
)

# -- In transformers' checkpoints --

# Values that the configurations lack: these models have neither a context limit nor attention.
_ABSENT: dict[str, object] = {
    "num_attention_heads": 1,
    "intermediate_size": 1,
    "max_position_embeddings": 1 << 20,
}
# Keys that every other model has.
_NO_ATTENTION: Keys = {
    "num_heads": 0,
    "intermediate_size": 0,
    **dict.fromkeys(("num_kv_heads", "head_dim", "value_dim", "rope_dim", "rope_theta")),
}
_RENAMES = (("backbone.", "model."), ("model.backbone.", "model."))
_OLDER = {"rms_norm_eps": "layer_norm_epsilon"}
_ENDS: Table = {
    "token_embd": at("model.embeddings", "model.embedding", "model.embed_tokens"),
    "output_norm": at("model.norm_f", "model.norm"),
}


def _keys(config: ModelConfig, values: Values) -> Keys:
    check_plain(values, "use_bias")
    refuse_other(values, {"mixer_rms_eps": (None, 1e-6), "time_step_scale": (None, 1.0)})
    states = mamba_1_states(config, values, "conv_kernel", "state_size", "expand", "time_step_rank")
    norms = class_name_of(values) == "FalconMambaForCausalLM"
    return {**states, **_NO_ATTENTION, "ssm_norms": norms}


def _keys_of_2(config: ModelConfig, values: Values) -> Keys:
    check_plain(values, "use_bias")
    return {**field_values(_states_of_2(config, values)), **_NO_ATTENTION}


def _states_of_2(config: ModelConfig, values: Values) -> SSMConfig:
    heads = values.size("num_heads", "ssm_num_heads", 128)
    states = SSMConfig(
        values.size("conv_kernel", "ssm_conv_kernel", 4),
        values.size("expand", "ssm_expand", 2) * config.hidden_size,
        values.size("state_size", "ssm_state_size", 128),
        values.size("n_groups", "ssm_num_groups", 8),
        heads,
    )
    if heads * values.size("head_dim", "head_dim", 64) != states.inner_size:
        raise values.error(
            "num_heads", f"x head_dim is not expand x hidden_size {states.inner_size}"
        )
    return checked(values, "num_heads", states)


def _table_of_2(config: ModelConfig, values: Values) -> Table:
    return {"attn_norm": "norm", **mamba_table(config, "mixer", "use_conv_bias")}


def _table(config: ModelConfig, values: Values) -> Table:
    return {"attn_norm": "norm", **mamba_1_table("mixer", "use_conv_bias")}


FAMILIES = (
    Family(
        classes={"MambaForCausalLM": "mamba", "FalconMambaForCausalLM": "mamba"},
        layer=_table,
        ends=_ENDS,
        keys=_keys,
        renames=_RENAMES,
        defaults={
            **_ABSENT,
            "rms_norm_eps": 1e-5,
            "use_conv_bias": True,
            "tie_word_embeddings": True,
        },
        older=_OLDER,
    ),
    Family(
        classes={"Mamba2ForCausalLM": "mamba2"},
        layer=_table_of_2,
        ends=_ENDS,
        keys=_keys_of_2,
        renames=_RENAMES,
        defaults={
            **_ABSENT,
            "head_dim": 64,
            "rms_norm_eps": 1e-5,
            "use_conv_bias": True,
            "tie_word_embeddings": False,
        },
        older=_OLDER,
    ),
)
