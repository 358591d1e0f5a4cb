"""Layers with a recurrent state in config.json: kinds of layers, sizes, tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError, UnsupportedError
from trinity.formats.huggingface.blocks import vector
from trinity.formats.huggingface.config import HFConfig
from trinity.formats.huggingface.stored import Module, Stored, View, as_it_is
from trinity.formats.huggingface.values import shown


@dataclass(frozen=True, slots=True)
class States:
    """Sizes as in SSMConfig."""

    conv_kernel: int
    inner_size: int
    state_size: int
    num_groups: int
    num_heads: int

    @property
    def channels(self) -> int:
        """What goes through the convolution."""
        return self.inner_size + 2 * self.num_groups * self.state_size

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


def convolution(
    source: str, channels: int, kernel: int, *views: View, bias: bool = False
) -> Iterator[Module]:
    """The taps of each channel, in the order of ``views``, and its bias."""
    stored = Stored((f"{source}.weight",), (channels, 1, kernel), _taps)
    if views:
        stored = Stored(stored.names, stored.shape, parts=tuple(_taps_of(view) for view in views))
    yield Module("ssm_conv1d.weight", (channels, kernel), (stored,), "precise")
    if bias:
        yield vector("ssm_conv1d.bias", f"{source}.bias", (channels,))


def _taps(array: NDArray[Any]) -> NDArray[Any]:
    return array[:, 0]


def _taps_of(view: View) -> View:
    return lambda array: view(array[:, 0])


def decay(
    source: str, heads: int, view: View = as_it_is, shape: tuple[int, ...] | None = None
) -> Module:
    """A of each head, of which checkpoints have the logarithm of -A."""
    form = Stored((f"{source}.A_log",), (heads,), view)
    return Module("ssm_a", shape or (heads,), (form,), "precise", change=_negative_exponential)


def _negative_exponential(values: NDArray[np.float32]) -> NDArray[np.float32]:
    # In float64: float32 exponentials of libraries differ in their last bit.
    return -np.exp(values.astype(np.float64)).astype(np.float32)


def group_norm(source: str, states: States) -> Iterator[Module]:
    """The norm of each group's values."""
    shape = (states.num_groups, states.inner_size // states.num_groups)
    form = Stored((f"{source}.weight",), (states.inner_size,), lambda a: a.reshape(shape))
    yield Module("ssm_norm.weight", shape, (form,), "precise")
