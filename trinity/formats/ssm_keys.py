"""Read the parameters of state space layers from metadata, and which layers are of which kind."""

from __future__ import annotations

import numpy as np

from trinity.config import SSMConfig
from trinity.formats.config_limits import MAX_STATE_VALUES
from trinity.formats.config_reader import ConfigReader

_WITHOUT_HEADS = ("mamba", "jamba")  # with Mamba-1


def read_ssm(reader: ConfigReader) -> SSMConfig | None:
    """Return the sizes of recurrent layers, or None."""
    if not reader.is_set("ssm_state_size"):
        return None
    heads, groups = reader.integer("ssm_num_heads"), 0
    inner, state = reader.integer("ssm_inner_size"), reader.integer("ssm_state_size")
    if reader.text("general.architecture") not in _WITHOUT_HEADS:
        groups = reader.integer("ssm_num_groups")
    if groups and heads % groups:
        relation = "must be a multiple of"
        raise reader.clash("ssm_num_heads", heads, "ssm_num_groups", groups, relation)
    if groups and inner % heads:
        relation = "must be a multiple of"
        raise reader.clash("ssm_inner_size", inner, "ssm_num_heads", heads, relation)
    if max(inner, groups * state) * state > MAX_STATE_VALUES:
        relation = f"{MAX_STATE_VALUES} is trinity's limit for the product with"
        raise reader.clash("ssm_inner_size", inner, "ssm_state_size", state, relation)
    return SSMConfig(
        conv_kernel=reader.integer("ssm_conv_kernel"),
        inner_size=inner,
        state_size=state,
        num_groups=groups,
        num_heads=heads,
    )


def read_recurrent_layers(reader: ConfigReader, num_layers: int) -> tuple[bool, ...]:
    """Return whether each layer is recurrent rather than attention; empty if no key says so."""
    if reader.is_set("recurrent_layers"):
        return read_kinds(reader, "recurrent_layers", num_layers)
    if reader.is_set("full_attention_interval"):
        interval = reader.integer("full_attention_interval")
        return tuple((layer + 1) % interval != 0 for layer in range(num_layers))
    return ()


def read_kinds(reader: ConfigReader, name: str, num_layers: int) -> tuple[bool, ...]:
    """Return a field with one bool for each layer; empty if the file has none."""
    if not reader.is_set(name):
        return ()
    value = reader.value(name)
    if not isinstance(value, np.ndarray) or value.dtype != np.bool_ or len(value) != num_layers:
        raise reader.error(name, f"must be an array of {num_layers} bools, one for each layer")
    return tuple(bool(kind) for kind in value)
