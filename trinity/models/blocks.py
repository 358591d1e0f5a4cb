"""Parts of layers that most families share: projections, attention, feed-forward."""

from __future__ import annotations

import math
from typing import Literal

from trinity.config import ModelConfig
from trinity.errors import ConfigError
from trinity.models import operations as op
from trinity.models.architecture import DRAFT_STATE, DRAFT_TOKEN, Has

Form = Literal["gate and up", "fused", "up"]  # of the first matrices of a feed-forward


def cache_of(config: ModelConfig, index: int, period: int) -> int | None:
    """The layer whose keys and values a layer reads; None: its own.

    ``period``: see ``ModelConfig.window_of``. Raises ConfigError if there is no such layer.
    """
    own = config.num_layers - config.shared_kv_layers
    if index < own:
        return None
    window = config.window_of(index, period)
    alike = [layer for layer in range(own) if config.window_of(layer, period) == window]
    if not alike:
        raise ConfigError(
            f"{config.architecture}.attention.shared_kv_layers is {config.shared_kv_layers}: layer "
            f"{index} of {config.num_layers} shares keys and values, but no earlier layer of its "
            "kind has any; convert the model again"
        )
    return alike[-1]


def rotation_of(config: ModelConfig, window: int = 0) -> op.Rotation:
    """The rotation of the configuration, with llama 3's frequency factors if the file has them.

    longrope has two sets of factors. Layers with a ``window`` may have their own base.
    """
    theta = (config.rope_theta_swa if window else 0.0) or config.rope_theta
    names = "rope_freqs.weight", ""
    if config.rope_scaling.type == "longrope":
        names = "rope_factors_short.weight", "rope_factors_long.weight"
    return op.Rotation(theta, config.rope_dim, config.rope_scaling, *names)


def norm(
    config: ModelConfig, x: str, weight: str, out: str, *, add: bool = False,
    kind: Literal["rms", "layer"] = "rms",
) -> op.Norm:  # fmt: skip
    """A norm of rows of ``hidden_size``."""
    return op.Norm(x, weight, out, config.hidden_size, add=add, kind=kind)


def drafting_pair(config: ModelConfig) -> list[op.Operation]:
    """For a drafting layer: a token's embedding and the state before it as one row."""
    width = config.hidden_size
    return [
        norm(config, DRAFT_TOKEN, "nextn.enorm", DRAFT_TOKEN),
        norm(config, DRAFT_STATE, "nextn.hnorm", DRAFT_STATE),
        op.Copy(DRAFT_TOKEN, "draft_pair", 1, width, width, width),
        op.Copy(DRAFT_STATE, "draft_pair", 1, width, width, width, out_first=width),
        op.Linear("draft_pair", 2 * width, (op.Product("nextn.eh_proj", "x", width),)),
    ]


def projections(
    config: ModelConfig, has: Has, x: str = "h", *, head_norms: bool | None = None
) -> list[op.Operation]:
    """Project x to q, k and v, with one weight each or one fused weight.

    ``head_norms``: whether each head of q and k is normalized; None: if the file has the weights.
    """
    heads, kv_heads = config.num_heads, config.num_kv_heads
    query, keys = heads * config.head_dim, kv_heads * config.head_dim
    values = kv_heads * (config.value_dim or config.head_dim)
    products = (
        op.Product("attn_q", "q", query),
        op.Product("attn_k", "k", keys),
        op.Product("attn_v", "v", values),
    )
    if has("attn_qkv"):
        products = (
            op.Product("attn_qkv", "q", query),
            op.Product("attn_qkv", "k", keys, first=query),
            op.Product("attn_qkv", "v", values, first=query + keys),
        )
    operations: list[op.Operation] = [op.Linear(x, config.hidden_size, products)]
    if head_norms or (head_norms is None and has("attn_q_norm")):
        operations.append(op.Norm("q", "attn_q_norm", "q", config.head_dim, heads))
    if head_norms or (head_norms is None and has("attn_k_norm")):
        operations.append(op.Norm("k", "attn_k_norm", "k", config.head_dim, kv_heads))
    return operations


def attention(
    config: ModelConfig, rotation: op.Rotation | None, *, window: int = 0, scale: float = 0.0,
    softcap: float = 0.0, sinks: str = "", temperature: op.Temperature | None = None,
    both_ways: bool = False, reach: int | None = None,
) -> list[op.Operation]:  # fmt: skip
    """Rotation and attention; ``scale`` 0 means 1 / sqrt(head_dim)."""
    sizes = config.num_heads, config.num_kv_heads, config.head_dim
    return [
        op.Rope(*sizes, rotation, value_dim=config.value_dim, temperature=temperature),
        op.Attention(
            *sizes, scale or 1 / math.sqrt(config.head_dim), window, softcap, sinks,
            value_dim=config.value_dim, both_ways=both_ways, reach=reach,
        ),
    ]  # fmt: skip


def plain_attention(config: ModelConfig) -> list[op.Operation]:
    """The configuration's rotation, and attention over all positions."""
    return attention(config, rotation_of(config))


def unscaled_in_windows(config: ModelConfig, window: int, theta: float = 0.0) -> op.Rotation:
    """The rotation of the configuration; layers with a ``window`` have no scaling.

    They have the file's base and number of values for windowed layers, or ``theta``, or those of
    the others.
    """
    if not window:
        return rotation_of(config)
    theta = config.rope_theta_swa or theta or config.rope_theta
    return op.Rotation(theta, config.rope_dim_swa or config.rope_dim)


def windowed_attention(config: ModelConfig, index: int, period: int) -> list[op.Operation]:
    """Rotation and attention within the window.

    The last layer of each ``period`` has no window and does not rotate. All layers of a model
    without windows rotate.
    """
    window = config.window_of(index, period)
    rotates = window or not config.sliding_window
    return attention(config, rotation_of(config, window) if rotates else None, window=window)


def attention_output(
    config: ModelConfig, out: str = "x", *, add: bool = True, scale: float = 1.0
) -> op.Linear:
    """Project a, times ``scale``, to the residual stream or another buffer."""
    product = op.Product("attn_output", out, config.hidden_size)
    width = config.num_heads * (config.value_dim or config.head_dim)
    return op.Linear("a", width, (product,), add, scale)


def attention_branch(
    config: ModelConfig, has: Has, attention: list[op.Operation] | None = None, *,
    head_norms: bool | None = None, kind: Literal["rms", "layer"] = "rms",
    ffn_norm: str = "ffn_norm",
) -> list[op.Operation]:  # fmt: skip
    """The first half of most layers: ``attention`` between norms; then h is the input of the rest.

    ``attention``: None for the usual one, over all positions. ``head_norms``: see ``projections``;
    ``kind``: of both norms.
    """
    attention = plain_attention(config) if attention is None else attention
    return [
        norm(config, "x", "attn_norm", "h", kind=kind),
        *projections(config, has, head_norms=head_norms),
        *attention,
        attention_output(config),
        norm(config, "x", ffn_norm, "h", kind=kind),
    ]


def between_norms(
    config: ModelConfig, attention: list[op.Operation], feed_forward: list[op.Operation]
) -> list[op.Operation]:
    """A layer with a norm before and after each branch; ``feed_forward`` stores its result in h."""
    return [
        norm(config, "x", "attn_norm", "h"),
        *attention,
        attention_output(config, "h", add=False),
        norm(config, "h", "post_attention_norm", "x", add=True),
        norm(config, "x", "ffn_norm", "h"),
        *feed_forward,
        norm(config, "h", "post_ffw_norm", "x", add=True),
    ]


def post_norm_layer(config: ModelConfig, attention: list[op.Operation]) -> list[op.Operation]:
    """A layer with a norm only after each branch."""
    return [
        *attention,
        attention_output(config, "h", add=False),
        norm(config, "h", "post_attention_norm", "x", add=True),
        *feed_forward(config, "silu", "x", out="h"),
        norm(config, "h", "post_ffw_norm", "x", add=True),
    ]


def attention_gate(config: ModelConfig) -> op.Linear:
    """Project h to the gate of attention, which has a value for each of its results."""
    width = config.num_heads * (config.value_dim or config.head_dim)
    return op.Linear("h", config.hidden_size, (op.Product("attn_gate", "attn_gate", width),))


def gated_attention_output(
    config: ModelConfig, out: str = "x", *, add: bool = True
) -> list[op.Operation]:
    """Multiply a by the sigmoid of its gate, and project it."""
    width = config.num_heads * (config.value_dim or config.head_dim)
    product = op.Product("attn_output", out, config.hidden_size)
    return [
        op.Gated("sigmoid", width, gate="attn_gate", up="a"),
        op.Linear("attn_gate", width, (product,), add),
    ]


def feed_forward(
    config: ModelConfig, activation: str, x: str = "h", *, form: Form = "gate and up",
    out: str = "x", scale: float = 1.0,
) -> list[op.Operation]:  # fmt: skip
    """The feed-forward from x: its result times ``scale`` is added to x, or stored in ``out``."""
    return [
        *feed_forward_hidden(config, activation, x, form=form),
        feed_forward_output(config, out, scale=scale),
    ]


def feed_forward_hidden(
    config: ModelConfig, activation: str, x: str = "h", *, form: Form = "gate and up"
) -> list[op.Operation]:
    """gate = act(gate) * up, from x; "fused": one weight has the rows of both, the gate's first.

    "up": gate = act(up), without a gate.
    """
    size = config.intermediate_size
    products = {
        "gate and up": (op.Product("ffn_gate", "gate", size), op.Product("ffn_up", "up", size)),
        "fused": (op.Product("ffn_up", "gate", size), op.Product("ffn_up", "up", size, first=size)),
        "up": (op.Product("ffn_up", "gate", size),),
    }
    gated = op.Gated(activation, size, up="") if form == "up" else op.Gated(activation, size)
    return [op.Linear(x, config.hidden_size, products[form], scales_bias=True), gated]


def feed_forward_output(config: ModelConfig, out: str = "x", *, scale: float = 1.0) -> op.Linear:
    """Project gate, times ``scale``, and add it to the residual stream, or store it in ``out``."""
    product = op.Product("ffn_down", out, config.hidden_size)
    add = out == "x"
    return op.Linear("gate", config.intermediate_size, (product,), add, scale, scales_bias=True)
