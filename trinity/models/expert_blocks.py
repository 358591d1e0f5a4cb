"""Parts that families with experts share: router, experts, shared expert."""

from __future__ import annotations

from trinity.config import ExpertConfig, Gating, ModelConfig
from trinity.errors import ConfigError
from trinity.models import blocks
from trinity.models.architecture import Has
from trinity.models.expert_operations import ExpertGated, ExpertInput, ExpertLinear, Mix, Route
from trinity.models.operations import Gated, GatedAdd, Linear, Operation, Product

_CHOICE_BIASES = ("exp_probs_b.bias", "exp_probs_b.")  # the second one in Hunyuan 3


def experts_of(config: ModelConfig) -> ExpertConfig:
    """Return the experts' configuration. Raises TypeError if the model has none."""
    if config.experts is None:
        raise TypeError(f"{config.architecture} has no experts in its configuration")
    return config.experts


def size_of(config: ModelConfig) -> int:
    """The width of an expert in Qwen's families if the file names none."""
    return config.intermediate_size // experts_of(config).num_experts_per_tok


def routed(
    config: ModelConfig,
    has: Has,
    activation: str,
    *,
    size: int = 0,
    gating: Gating = "softmax",
    normalize: bool = True,
    scale: float = 1.0,
    gated: bool = True,
    out: str = "x",
) -> list[Operation]:
    """Route h to experts; add their sum, times ``scale``, to x, or store it in ``out``.

    The file's values of expert size, gating and normalization override the arguments. ``gated``
    False: see ``mixture``.
    """
    return [
        router(config),
        route(config, has, gating, normalize, scale),
        *mixture(config, has, activation, out, size=size, add=out == "x", gated=gated),
    ]


def router(config: ModelConfig) -> Linear:
    """A score of h for each expert."""
    count = experts_of(config).num_experts
    product = Product("ffn_gate_inp", "scores", count)
    return Linear("h", config.hidden_size, (product,), scales_bias=True)


def route(
    config: ModelConfig, has: Has, gating: Gating, normalize: bool, scale: float = 1.0
) -> Route:
    """The choice of experts, with the file's options or else the family's.

    Groups of experts are ranked by their best probability in DeepSeek V2, by the two best in V3.
    """
    experts = experts_of(config)
    gating = experts.gating or gating
    return Route(
        "scores", experts.num_experts, experts.num_experts_per_tok,
        gating=gating,
        normalize=normalize if experts.normalize is None else experts.normalize,
        scale=experts.scale * scale,
        bias=next((name for name in _CHOICE_BIASES if has(name)), ""),
        num_groups=experts.num_groups, groups_used=experts.groups_used,
        group_best=2 if gating == "sigmoid" else 1,
    )  # fmt: skip


def mixture(
    config: ModelConfig,
    has: Has,
    activation: str,
    out: str = "x",
    *,
    size: int = 0,
    add: bool = True,
    scales_results: bool = False,
    gated: bool = True,
    x: str = "h",
    width: int = 0,
    weighs_inputs: bool = False,
) -> list[Operation]:
    """x through each chosen expert, and the weighted sum. ``scales_results``: see ExpertLinear.

    ``weighs_inputs``: the experts' weights multiply x instead of the results.

    Without ``gated`` an expert is down(act(up)). A file has one weight for gate and up, or two, or
    in very old files two for each expert.
    Raises ConfigError if neither the file nor the family knows the ``size`` of an expert.
    """
    experts, hidden = experts_of(config), width or config.hidden_size
    size = experts.intermediate_size or size
    if not size:
        raise ConfigError(
            f"{config.architecture}.expert_feed_forward_length, the width of an expert, is missing "
            "or 0; convert the model again"
        )
    counts = experts.num_experts, experts.num_experts_per_tok
    suffix, first = "_exps", 0
    gate = up = "ffn_gate_up_exps"
    if has(gate):
        first = size
    else:
        suffix = "" if has("ffn_gate.0") and not has("ffn_gate") else "_exps"
        gate, up = f"ffn_gate{suffix}", f"ffn_up{suffix}"
    halves = Product(gate, "expert_gate", size), Product(up, "expert_up", size, first)
    products = halves if gated else (Product(up, "expert_gate", size),)
    down = (Product(f"ffn_down{suffix}", "expert_out", hidden),)
    before: list[Operation] = []
    if weighs_inputs:
        before.append(ExpertInput(x, "expert_in", hidden, experts.num_experts_per_tok))
        x = "expert_in"
    return [
        *before,
        ExpertLinear(x, hidden, products, *counts, spread=not weighs_inputs),
        ExpertGated(activation, size, up="expert_up" if gated else ""),
        ExpertLinear("expert_gate", size, down, *counts, False, scales_results),
        Mix("expert_out", out, hidden, experts.num_experts_per_tok, add, not weighs_inputs),
    ]


def after_dense_layers(
    config: ModelConfig, index: int, has: Has, *, gating: Gating = "softmax",
    normalize: bool = False, out: str = "x",
) -> list[Operation]:  # fmt: skip
    """DeepSeek's feed-forward: dense in the first layers, then experts and a shared expert.

    Only every ``layer_step``-th layer has experts; the others are dense too.
    """
    experts = config.experts
    if (
        experts is None
        or index < experts.first_dense_layers
        or (index + 1) % experts.layer_step != 0
    ):
        return blocks.feed_forward(config, "silu", out=out)
    return [
        *routed(config, has, "silu", gating=gating, normalize=normalize, out=out),
        *shared_expert(config, "silu", out=out),
    ]


def shared_expert(
    config: ModelConfig,
    activation: str,
    *,
    size: int = 0,
    gated: bool = False,
    scale: float = 1.0,
    form: blocks.Form = "gate and up",
    out: str = "x",
) -> list[Operation]:
    """The shared expert, which every token uses, added to ``out``; [] if there is none.

    ``size``: its width if the file names none. ``gated``: times the sigmoid of its own score.
    ``form``: see ``blocks.feed_forward_hidden``.
    """
    hidden, size = config.hidden_size, experts_of(config).shared_intermediate_size or size
    if not size:
        return []
    products: tuple[Product, ...] = (
        Product("ffn_gate_shexp", "gate", size),
        Product("ffn_up_shexp", "up", size),
    )
    if form == "up":
        products = (Product("ffn_up_shexp", "gate", size),)
    if form == "fused":
        products = (
            Product("ffn_up_shexp", "gate", size), Product("ffn_up_shexp", "up", size, first=size)
        )  # fmt: skip
    if gated:
        products = (*products, Product("ffn_gate_inp_shexp", "shared_gate", 1))
        down = Product("ffn_down_shexp", "shared", hidden)
        return [
            Linear("h", hidden, products, scales_bias=True),
            Gated(activation, size),
            Linear("gate", size, (down,), scales_bias=True),
            GatedAdd("shared_gate", "shared", "x", hidden),
        ]
    down = Product("ffn_down_shexp", out, hidden)
    return [
        Linear("h", hidden, products, scales_bias=True),
        Gated(activation, size, up="" if form == "up" else "up"),
        Linear("gate", size, (down,), add=True, scale=scale, scales_bias=True),
    ]
