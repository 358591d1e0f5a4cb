"""The operations in which a family describes its layers.

An operation has its parameters, and the shapes of what it reads and writes. The buffers of a plan,
the binding of tensors and the check of a file against its configuration follow from these.

Buffers have names and a row of float32 per token: ``x`` is the residual stream, ``h`` its
normalized copy, ``q``, ``k``, ``v`` the projections, ``a`` the attention's result, ``gate`` and
``up`` the halves of the feed-forward; a family may name others. Weights are named as in the file,
without ``blk.N.`` and ``.weight``. A name that ends with ``.weight``, ``.bias`` or ``.scale`` is
complete, and one that ends with a dot is complete without the dot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trinity.config import NO_SCALING, Gating, RopeScaling

Widths = Mapping[str, int]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Norm:
    """out = norm(x) * weight, for each of ``groups`` vectors of ``width`` values in a row.

    "rms" divides by the root of the mean square. "layer" subtracts the mean first, and adds the
    weight's ``.bias`` if the file has one.
    """

    x: str
    weight: str  # "": none
    out: str
    width: int
    groups: int = 1
    add: bool = False  # add the result to the values in out
    kind: Literal["rms", "layer"] = "rms"
    per_group: bool = False  # each group has its own weight
    factor: float = 1.0  # multiplies the weight, or 1 without a weight
    eps: float = 0.0  # added to the mean square; 0: the model's

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return dict.fromkeys((self.x, self.out), self.width * self.groups)

    def weights(self) -> Shapes:
        """Shape of each weight, rows first."""
        if not self.weight:
            return {}
        return {self.weight: (self.groups, self.width) if self.per_group else (self.width,)}


@dataclass(frozen=True, slots=True)
class Product:
    """``rows`` rows of a weight, from row ``first`` on; the results go to the buffer ``out``."""

    weight: str
    out: str
    rows: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Linear:
    """out = scale * (weight @ x + bias) for each of ``products``, which share x.

    A weight may have a ``.bias`` and a ``.scale`` of one value.
    """

    x: str
    width: int
    """Values of a row of x."""
    products: tuple[Product, ...]
    add: bool = False
    """The results are added to the values in out."""
    scale: float = 1.0
    scales_bias: bool = False
    """The weight's ``.scale`` multiplies the bias, too. Source: llama.cpp, build_ffn."""

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {self.x: self.width} | {product.out: product.rows for product in self.products}

    def weights(self) -> Shapes:
        """Shape of each weight, rows first; a fused weight counts as a whole."""
        rows: dict[str, int] = {}
        for product in self.products:
            end = product.first + product.rows
            rows[product.weight] = max(rows.get(product.weight, 0), end)
        return {name: (count, self.width) for name, count in rows.items()}


@dataclass(frozen=True, slots=True)
class HeadLinear:
    """A matrix for each of ``heads``: out's head = weight[head] @ the first values of x's head."""

    x: str
    out: str
    weight: str
    heads: int
    rows: int  # results per head
    width: int  # values of a head of x that are multiplied
    x_step: int  # values of a head of x
    out_step: int  # values of a head of out

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {self.x: self.heads * self.x_step, self.out: self.heads * self.out_step}

    def weights(self) -> Shapes:
        """Shape of each weight, rows first."""
        return {self.weight: (self.heads, self.rows, self.width)}


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy ``groups`` parts of ``width`` values from x to out.

    Part g begins at value x_first + g * x_step of x and goes to out_first + g * out_step.
    """

    x: str
    out: str
    groups: int
    width: int
    x_step: int
    out_step: int
    x_first: int = 0
    out_first: int = 0

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        last = self.groups - 1
        return {
            self.x: self.x_first + last * self.x_step + self.width,
            self.out: self.out_first + last * self.out_step + self.width,
        }

    def weights(self) -> Shapes:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class Rotation:
    """A table of rotations: pair i of ``dim`` values turns by position * theta ** (-2 i / dim)."""

    theta: float
    dim: int
    scaling: RopeScaling = NO_SCALING
    factors: str = ""  # a tensor of dim / 2 divisors of the frequencies; optional in the file
    long_factors: str = ""
    """Replaces ``factors`` if the context exceeds ``scaling.original_context_length`` tokens."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """A factor of the queries at position p: 1 + scale * ln(1 + floor(p / length))."""

    scale: float
    length: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotate the heads of q and k by their positions, and store k and v in the cache."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotation: Rotation | None  # None: positions are not rotated
    first: int = 0  # the first value of a head that is rotated
    value_dim: int = 0  # values of a head of v; 0: as many as of k
    value: str = "v"  # the buffer of v, whose first values are used
    stores: bool = True  # False: the attention reads another layer's k and v
    temperature: Temperature | None = None

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        widths = {"q": self.num_heads * self.head_dim}
        if self.stores:
            widths["k"] = self.num_kv_heads * self.head_dim
            values = self.num_kv_heads * (self.value_dim or self.head_dim)
            widths[self.value] = max(widths.get(self.value, 0), values)
        return widths

    def weights(self) -> Shapes:
        """None: the tensors of the tables belong to the model."""
        return {}


@dataclass(frozen=True, slots=True)
class Attention:
    """a = softmax(q K * scale) V over the cache; ``num_heads`` share ``num_kv_heads``.

    A token attends to the positions up to its own.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int = 0  # only to the last so many positions, its own included; 0: to all
    softcap: float = 0.0  # c, if not 0: a score s becomes c * tanh(s / c)
    sinks: str = ""  # a weight of one score per head that joins the softmax without a value
    value_dim: int = 0  # values of a head of V and of a; 0: as many as of q
    cache_of: int | None = None  # the layer whose keys and values are read; None: its own
    both_ways: bool = False  # a token attends to its whole text
    reach: int = 0  # with both_ways: to so many positions on each side; 0: to all

    @property
    def width_of_values(self) -> int:
        """Values of a head of V."""
        return self.value_dim or self.head_dim

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {
            "q": self.num_heads * self.head_dim,
            "a": self.num_heads * self.width_of_values,
        }

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.sinks: (self.num_heads,)} if self.sinks else {}


@dataclass(frozen=True, slots=True)
class Gated:
    """gate = act(gate) * up; silu, gelu (tanh form), gelu_erf, relu2, sigmoid, none, swiglu_oai.

    swiglu_oai is that of gpt-oss, with limits.
    """

    activation: str
    width: int
    gate: str = "gate"
    up: str = "up"  # "": gate = act(gate)
    first: int = 0  # the first value of up's row that is used

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        widths = {self.gate: self.width}
        return widths | {self.up: self.first + self.width} if self.up else widths

    def weights(self) -> Shapes:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class Scale:
    """x = x * factor, also times the value of ``weight`` if it is named."""

    x: str
    width: int
    factor: float = 1.0
    weight: str = ""

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {self.x: self.width}

    def weights(self) -> Shapes:
        """Shape of the weight."""
        return {self.weight: (1,)} if self.weight else {}


@dataclass(frozen=True, slots=True)
class GatedAdd:
    """out = out + sigmoid(gate) * x; ``gate`` has one value per token."""

    gate: str
    x: str
    out: str
    width: int

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {self.gate: 1, self.x: self.width, self.out: self.width}

    def weights(self) -> Shapes:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class Route:
    """Choose ``per_token`` of ``num_experts`` for each token, with their weights.

    ``gating``: probabilities are the softmax or the sigmoid of all scores, or the softmax of the
    chosen scores ("softmax_chosen").
    """

    scores: str  # a buffer
    num_experts: int
    per_token: int
    gating: Gating = "softmax"
    normalize: bool = True  # divide the chosen weights by their sum
    scale: float = 1.0  # multiplies the weights
    bias: str = ""  # a tensor added to the scores for the choice only
    least_sum: float = 6.1e-5  # the lower bound of that sum
    num_groups: int = 0  # of experts; 0: no groups
    groups_used: int = 0  # experts of so many groups can be chosen
    group_best: int = 2  # a group's rank is the sum of this many best scores

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {self.scores: self.num_experts}

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.bias: (self.num_experts,)} if self.bias else {}


@dataclass(frozen=True, slots=True)
class ExpertLinear:
    """A linear of each of ``num_experts``, for the experts that ``Route`` chose for a token.

    Weights have the shape (experts, rows, width), or there is one tensor per expert with its number
    after the name (``ffn_gate.3``). They may have a ``.bias`` (experts, rows) and a ``.scale``
    (experts). The output buffers have a row for each token and expert.
    """

    x: str
    width: int
    products: tuple[Product, ...]
    num_experts: int
    per_token: int
    spread: bool  # x has a row per token, which its experts share; else one per token and expert
    scales_results: bool = False
    """``.scale`` is a factor of the expert's result, rather than of its stored weights."""

    def buffers(self) -> Widths:
        """Values of a row of each buffer with a row per token."""
        return {self.x: self.width} if self.spread else {}

    def expert_buffers(self) -> Widths:
        """Values of a row of each buffer with a row per token and expert."""
        widths = {product.out: product.rows for product in self.products}
        return widths if self.spread else widths | {self.x: self.width}

    def weights(self) -> Shapes:
        """Shape of each weight; a fused weight counts as a whole."""
        rows: dict[str, int] = {}
        for product in self.products:
            end = product.first + product.rows
            rows[product.weight] = max(rows.get(product.weight, 0), end)
        return {name: (self.num_experts, count, self.width) for name, count in rows.items()}


@dataclass(frozen=True, slots=True)
class ExpertGated:
    """As ``Gated``, for rows of each token and expert."""

    activation: str
    width: int
    gate: str = "expert_gate"
    up: str = "expert_up"  # "": gate = act(gate)

    def buffers(self) -> Widths:
        """None with a row per token."""
        return {}

    def expert_buffers(self) -> Widths:
        """Values of a row of each buffer with a row per token and expert."""
        return dict.fromkeys(filter(None, (self.gate, self.up)), self.width)

    def weights(self) -> Shapes:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class Mix:
    """out = the weighted sum of x's rows of a token's experts."""

    x: str
    out: str
    width: int
    per_token: int
    add: bool = False  # add to the values in out

    def buffers(self) -> Widths:
        """Values of a row of each buffer with a row per token."""
        return {self.out: self.width}

    def expert_buffers(self) -> Widths:
        """Values of a row of each buffer with a row per token and expert."""
        return {self.x: self.width}

    def weights(self) -> Shapes:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class CausalConv:
    """x = act(the convolution of each channel of x over the last ``taps`` tokens).

    The weight may have a ``.bias``.
    """

    x: str
    weight: str
    width: int
    taps: int
    activation: str = ""  # "silu", or "" for none

    @property
    def state_width(self) -> int:
        """The number of float32 values of the state."""
        return self.width * (self.taps - 1)

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {self.x: self.width}

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.weight: (self.width, self.taps)}


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """out = the gated delta rule, with a state for each of ``heads`` (ops/delta_rule.py).

    A row of x has queries, then keys, of ``key_heads`` heads of ``key_dim`` values, then values of
    ``heads`` heads of ``value_dim``. ``beta`` and ``alpha`` have one value per head.
    """

    x: str
    beta: str
    alpha: str
    out: str
    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    scale: float  # multiplies the queries
    tiled: bool = False
    """Head h uses key head h % key_heads, otherwise h // (heads / key_heads)."""
    a: str = "ssm_a."
    bias: str = "ssm_dt.bias"

    @property
    def state_width(self) -> int:
        """The number of float32 values of the state."""
        return _state_values(self.heads, self.key_dim, self.value_dim)

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        values = self.heads * self.value_dim
        return {
            self.x: 2 * self.key_heads * self.key_dim + values,
            self.beta: self.heads,
            self.alpha: self.heads,
            self.out: values,
        }

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return dict.fromkeys((self.a, self.bias), (self.heads,))


@dataclass(frozen=True, slots=True)
class SelectiveScan:
    """out = Mamba-2's selective scan, with a state for each of ``heads`` (ops/selective_scan.py).

    A row of x has ``heads`` heads of ``head_dim`` values, then b and c of ``groups`` groups of
    ``key_dim`` values each. ``dt`` has one value per head.
    """

    x: str
    dt: str
    out: str
    heads: int
    groups: int
    head_dim: int
    key_dim: int
    a: str = "ssm_a."
    d: str = "ssm_d."
    bias: str = "ssm_dt.bias"

    @property
    def state_width(self) -> int:
        """The number of float32 values of the state."""
        return _state_values(self.heads, self.key_dim, self.head_dim)

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        values = self.heads * self.head_dim
        return {
            self.x: values + 2 * self.groups * self.key_dim,
            self.dt: self.heads,
            self.out: values,
        }

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return dict.fromkeys((self.a, self.d, self.bias), (self.heads,))


def _state_values(heads: int, keys: int, values: int) -> int:
    """The size of a state in the kernels, which pad the values of a head to 16."""
    return heads * keys * -(-values // 16) * 16


Recurrent = CausalConv | DeltaRule | SelectiveScan  # operations with a recurrent state
Operation = (
    Norm | Linear | HeadLinear | Copy | Rope | Attention | Gated | Scale | GatedAdd
    | CausalConv | DeltaRule | SelectiveScan
    | Route | ExpertLinear | ExpertGated | Mix
)  # fmt: skip
