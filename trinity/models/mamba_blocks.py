"""The Mamba-2 layer, which several families use instead of attention or in addition to it."""

from __future__ import annotations

from trinity.config import ModelConfig, SSMConfig
from trinity.models.architecture import Has
from trinity.models.operations import Gated, Linear, Norm, Operation, Product
from trinity.models.recurrent_operations import CausalConv, SelectiveScan


def ssm_of(config: ModelConfig) -> SSMConfig:
    """The sizes of the recurrent state, for a model with such layers."""
    if config.ssm is None:
        raise TypeError(f"{config.architecture} has no recurrent state in its configuration")
    return config.ssm


def mamba(config: ModelConfig, has: Has, *, scale: float = 1.0) -> list[Operation]:
    """The Mamba-2 layer: adds ``scale`` times its result for h to x. The last norm is optional."""
    ssm = ssm_of(config)
    inner, channels = ssm.inner_size, ssm.channels
    products = (
        Product("ssm_in", "z", inner),
        Product("ssm_in", "xbc", channels, first=inner),
        Product("ssm_in", "dt", ssm.num_heads, first=inner + channels),
    )
    operations: list[Operation] = [
        Linear("h", config.hidden_size, products),
        CausalConv("xbc", "ssm_conv1d", channels, ssm.conv_kernel, "silu"),
        SelectiveScan(
            "xbc", "dt", "y", ssm.num_heads, ssm.num_groups, ssm.head_dim, ssm.state_size
        ),
        Gated("silu", inner, gate="z", up="y"),
    ]
    if has("ssm_norm"):
        groups = ssm.num_groups
        operations.append(Norm("z", "ssm_norm", "z", inner // groups, groups, per_group=True))
    out = (Product("ssm_out", "x", config.hidden_size),)
    return [*operations, Linear("z", inner, out, add=True, scale=scale)]
