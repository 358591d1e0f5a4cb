"""Layers with a recurrent state in config.json: kinds of layers, sizes, tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trinity.config import ModelConfig, SSMConfig
from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.stored import Stored, View, as_it_is, taps
from trinity.formats.huggingface.table import TableRow, at, tensor
from trinity.formats.huggingface.values import Values, shown


def layer_kinds(
    config: ModelConfig, values: Values, kinds: Mapping[str, bool], default: int = 0
) -> tuple[bool, ...]:
    """Return whether each layer has a recurrent state, from ``layer_types``.

    ``kinds``: the words, and whether they mean a state. Without a list every layer has one except
    each last of ``full_attention_interval``, by default ``default``. Raises ConfigError for a list
    of another length, UnsupportedError for other words.
    """
    listed = values.values.get("layer_types")
    if listed is None and default:
        key = "full_attention_interval"
        interval = values.size(key, key, default)
        return tuple((layer + 1) % interval != 0 for layer in range(config.num_layers))
    if not isinstance(listed, list) or len(listed) != config.num_layers:
        state = f"has {len(listed)} values" if isinstance(listed, list) else f"is {shown(listed)}"
        raise ConfigError(
            f"{values.source}: layer_types {state}; expected one for each of the "
            f"{config.num_layers} layers of num_hidden_layers"
        )
    for kind in listed:
        if not isinstance(kind, str) or kind not in kinds:
            raise UnsupportedError(
                f"{values.source}: layer_types has {shown(kind)}; of this class trinity reads "
                f"{', '.join(kinds)}"
            )
    return tuple(kinds[kind] for kind in listed)


def convolution(source: str, *views: View, bias: bool | str = False) -> TableRow:
    """Return the taps of each channel, in the order of ``views``."""
    parts = tuple(_taps_of(view) for view in views)
    return TableRow((Stored((f"{source}.weight",), taps, parts),), bias)


def _taps_of(view: View) -> View:
    return lambda array: view(taps(array))


def decay(source: str, view: View = as_it_is, *, column: bool = False) -> TableRow:
    """Return A of each head; checkpoints store the logarithm of -A."""
    form = Stored((f"{source}.A_log",), view)
    return TableRow((form,), change=_negative_exponential, column=column)


def _negative_exponential(values: NDArray[np.float32]) -> NDArray[np.float32]:
    # In float64: float32 exponentials of libraries differ in their last bit.
    return -np.exp(values.astype(np.float64)).astype(np.float32)


# transformers 5 writes numbers that are not finite as objects.
_NO_LIMITS = (None, [0.0, float("inf")], [0.0, {"__float__": "Infinity"}])


def check_plain(values: Values, *keys: str) -> None:
    """Raise UnsupportedError for settings without tensors in GGUF's files of these classes."""
    for key in keys:
        if values.flag(key):
            raise UnsupportedError(
                f"{values.source}: {key} is true; in GGUF these layers have no such bias"
            )


def mamba_table(
    config: ModelConfig, source: str, bias: str, norm: str = ""
) -> dict[str, str | TableRow]:
    """Return a layer's table. ``bias``, ``norm``: keys that turn on these tensors."""
    groups = config.ssm.num_groups if config.ssm else 1
    norms = Stored((f"{source}.norm.weight",), lambda array: array.reshape(groups, -1))
    return {
        "ssm_in": f"{source}.in_proj",
        "ssm_out": f"{source}.out_proj",
        "ssm_conv1d": convolution(f"{source}.conv1d", bias=bias),
        "ssm_dt.bias": tensor(f"{source}.dt_bias"),
        "ssm_a.": decay(source, column=True),
        "ssm_d.": TableRow((Stored((f"{source}.D",)),), column=True),
        "ssm_norm": TableRow((norms,), when=norm),
    }


def mamba_1_table(source: str, bias: str, *, norms: bool = False) -> dict[str, str | TableRow]:
    """Return the table of a Mamba-1 layer. ``bias``: the key of the convolution's."""
    table: dict[str, str | TableRow] = {
        "ssm_in": f"{source}.in_proj",
        "ssm_conv1d": convolution(f"{source}.conv1d", bias=bias),
        "ssm_x": f"{source}.x_proj",
        "ssm_dt": at(f"{source}.dt_proj", bias=True),
        "ssm_a.": decay(source),
        "ssm_d.": tensor(f"{source}.D"),
        "ssm_out": f"{source}.out_proj",
    }
    names = ("dt", "b", "c") if norms else ()
    return table | {
        f"ssm_{name}_norm": TableRow(
            (Stored((f"{source}.{name}_layernorm.weight",)),), optional=True
        )
        for name in names
    }


def mamba_1_states(
    config: ModelConfig, values: Values, taps: str, state: str, expand: str, rank: str
) -> dict[str, object]:
    """Return GGUF's keys of Mamba-1, from the class's names of its sizes."""
    given = values.values.get(rank)
    automatic = given is None or given == "auto"
    return {
        "ssm_conv_kernel": values.size(taps, "ssm_conv_kernel", 4),
        "ssm_inner_size": values.size(expand, "ssm_expand", 2) * config.hidden_size,
        "ssm_state_size": values.size(state, "ssm_state_size", 16),
        "ssm_num_heads": -(-config.hidden_size // 16) if automatic else (
            values.size(rank, "ssm_num_heads")
        ),
    }  # fmt: skip


def checked(values: Values, key: str, states: SSMConfig) -> SSMConfig:
    """Raise ConfigError if heads do not divide values or groups.

    Raises UnsupportedError for a limit of steps, for which GGUF has no key.
    """
    limit = values.values.get("time_step_limit")
    if limit not in _NO_LIMITS:
        raise UnsupportedError(
            f"{values.source}: time_step_limit is {shown(limit)}; trinity reads this class with "
            "steps of any size, [0, Infinity]"
        )
    if states.inner_size % states.num_heads or states.num_heads % states.num_groups:
        raise values.error(
            key,
            f"must divide the inner size {states.inner_size} and be a multiple of the "
            f"{states.num_groups} groups",
        )
    return states


def kv_heads(config: ModelConfig, without: tuple[bool, ...]) -> NDArray[np.int32]:
    """Return the number of KV heads of each layer, 0 for layers without attention."""
    return np.array([0 if is_without else config.num_kv_heads for is_without in without], np.int32)
