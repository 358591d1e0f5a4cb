"""Layers with a recurrent state in config.json: kinds of layers, sizes, tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.config import HFConfig
from trinity.formats.huggingface.stored import Stored, View, as_it_is, taps
from trinity.formats.huggingface.table import TableRow
from trinity.formats.huggingface.values import shown


@dataclass(frozen=True, slots=True)
class States:
    """Sizes as in SSMConfig."""

    conv_kernel: int
    inner_size: int
    state_size: int
    num_groups: int
    num_heads: int

    def keys(self) -> dict[str, object]:
        """GGUF's keys for them, without the architecture."""
        return {
            "ssm.conv_kernel": self.conv_kernel,
            "ssm.inner_size": self.inner_size,
            "ssm.state_size": self.state_size,
            "ssm.group_count": self.num_groups,
            "ssm.time_step_rank": self.num_heads,
        }


def layer_kinds(config: HFConfig, kinds: Mapping[str, bool], default: int = 0) -> tuple[bool, ...]:
    """Whether each layer has a recurrent state, by ``layer_types``.

    ``kinds``: the words, and whether they mean that. Without a list every layer has it but each
    last of ``full_attention_interval`` ones, which is ``default`` where it is missing too.
    Raises ConfigError for a list of another length, UnsupportedError for other words.
    """
    values = config.values
    listed = values.values.get("layer_types")
    if listed is None and default:
        key = "full_attention_interval"
        interval = values.size(key, key, default)
        return tuple((layer + 1) % interval != 0 for layer in range(config.num_layers))
    if not isinstance(listed, list) or len(listed) != config.num_layers:
        found = f"has {len(listed)} values" if isinstance(listed, list) else f"is {shown(listed)}"
        raise ConfigError(
            f"{config.source}: layer_types {found}; expected one for each of the "
            f"{config.num_layers} layers of num_hidden_layers"
        )
    for kind in listed:
        if not isinstance(kind, str) or kind not in kinds:
            raise UnsupportedError(
                f"{config.source}: layer_types has {shown(kind)}; of this class trinity reads "
                f"{', '.join(kinds)}"
            )
    return tuple(kinds[kind] for kind in listed)


def convolution(source: str, *views: View, bias: bool | str = False) -> TableRow:
    """The taps of each channel, in the order of ``views``."""
    parts = tuple(_taps_of(view) for view in views)
    return TableRow((Stored((f"{source}.weight",), taps, parts),), bias)


def _taps_of(view: View) -> View:
    return lambda array: view(taps(array))


def decay(source: str, view: View = as_it_is, *, column: bool = False) -> TableRow:
    """A of each head, of which checkpoints have the logarithm of -A."""
    form = Stored((f"{source}.A_log",), view)
    return TableRow((form,), change=_negative_exponential, column=column)


def _negative_exponential(values: NDArray[np.float32]) -> NDArray[np.float32]:
    # In float64: float32 exponentials of libraries differ in their last bit.
    return -np.exp(values.astype(np.float64)).astype(np.float32)
