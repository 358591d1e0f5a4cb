"""The layers of Mamba-2 and Mamba-1, which families use instead of attention or next to it."""

from __future__ import annotations

from trinity.config import ModelConfig, SSMConfig
from trinity.models.architecture import Has
from trinity.models.operations import Gated, Linear, Norm, Operation, Product
from trinity.models.recurrent_operations import CausalConv, ChannelScan, SelectiveScan


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


_STEP_NORM_EPS = 1e-6  # of norms without weights; transformers' FalconMamba


def mamba_1(config: ModelConfig, has: Has) -> list[Operation]:
    """The Mamba-1 layer: adds its result for h to x."""
    ssm = ssm_of(config)
    inner, rank, state = ssm.inner_size, ssm.num_heads, ssm.state_size
    into = Product("ssm_in", "y", inner), Product("ssm_in", "z", inner, first=inner)
    products = (
        Product("ssm_x", "dt_low", rank),
        Product("ssm_x", "b", state, first=rank),
        Product("ssm_x", "c", state, first=rank + state),
    )
    out = (Product("ssm_out", "x", config.hidden_size),)
    return [
        Linear("h", config.hidden_size, into),
        CausalConv("y", "ssm_conv1d", inner, ssm.conv_kernel, "silu"),
        Linear("y", inner, products),
        *_step_norms(config, has, {"dt_low": rank, "b": state, "c": state}),
        Linear("dt_low", rank, (Product("ssm_dt", "dt", inner),)),
        ChannelScan("y", "b", "c", "dt", "scanned", inner, state),
        Gated("silu", inner, gate="z", up="scanned"),
        Linear("z", inner, out, add=True),
    ]


def _step_norms(config: ModelConfig, has: Has, widths: dict[str, int]) -> list[Operation]:
    """Norms of what steps, b and c are computed from: with weights in Jamba, or without."""
    if has("ssm_dt_norm"):
        names = {"dt_low": "ssm_dt_norm", "b": "ssm_b_norm", "c": "ssm_c_norm"}
        return [Norm(x, names[x], x, width) for x, width in widths.items()]
    if config.ssm_norms:
        return [Norm(x, "", x, width, eps=_STEP_NORM_EPS) for x, width in widths.items()]
    return []
