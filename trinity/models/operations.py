"""The vocabulary in which a family says what its layers compute.

An operation carries its parameters and states the shapes of what it reads and writes: buffers,
the binding of tensors and the check of a file against its configuration follow from these.

Buffers are named and hold a row of float32 for each token: ``x`` is the residual stream, ``h`` a
normalized copy of it, ``q``, ``k``, ``v`` the projections, ``a`` the attention's result, ``gate``
and ``up`` the feed-forward's halves; a family may name others. Weights are named as in the file,
without ``blk.N.`` and without ``.weight``; a name that ends with ``.weight``, ``.bias`` or
``.scale`` is complete, and one that ends with a dot is complete without it.
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
    """out = norm(x) * weight, over each of ``groups`` vectors of ``width`` values in a row.

    ``kind`` "rms" divides by the root of the mean square, "layer" takes the mean off before, and
    adds the weight's ``.bias`` where the file has one. ``weight`` "": none. ``per_group``: each
    group has a weight of its own. The weight, or 1, is multiplied by ``factor``. ``add`` adds the
    result onto out instead. ``eps`` is added to the mean square, 0: the model's.
    """

    x: str
    weight: str
    out: str
    width: int
    groups: int = 1
    add: bool = False
    kind: Literal["rms", "layer"] = "rms"
    per_group: bool = False
    factor: float = 1.0
    eps: float = 0.0

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
    """``rows`` rows of a weight, from row ``first`` on: what goes to the buffer ``out``."""

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
        """Shape of each weight, rows first; of a fused one that of all its parts together."""
        rows: dict[str, int] = {}
        for product in self.products:
            end = product.first + product.rows
            rows[product.weight] = max(rows.get(product.weight, 0), end)
        return {name: (count, self.width) for name, count in rows.items()}


@dataclass(frozen=True, slots=True)
class HeadLinear:
    """A matrix for each of ``heads``: out's head = weight[head] @ the first values of x's head.

    A head of x has ``x_step`` values, of which the first ``width`` are multiplied; its ``rows``
    results begin a head of ``out_step`` values.
    """

    x: str
    out: str
    weight: str
    heads: int
    rows: int
    width: int
    x_step: int
    out_step: int

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {self.x: self.heads * self.x_step, self.out: self.heads * self.out_step}

    def weights(self) -> Shapes:
        """Shape of each weight, rows first."""
        return {self.weight: (self.heads, self.rows, self.width)}


@dataclass(frozen=True, slots=True)
class Copy:
    """``groups`` pieces of ``width`` values from x to out.

    Piece g begins at value x_first + g * x_step of x and goes to out_first + g * out_step.
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
    """A table of rotations: pair i of ``dim`` values turns by position * theta ** (-2 i / dim).

    ``scaling`` stretches it; ``factors`` names a tensor of dim / 2 values that divide the
    frequencies, where the file has one. ``long_factors`` takes its place in a context of more than
    ``scaling.original_context_length`` tokens.
    """

    theta: float
    dim: int
    scaling: RopeScaling = NO_SCALING
    factors: str = ""
    long_factors: str = ""


@dataclass(frozen=True, slots=True)
class Temperature:
    """Queries at position p are multiplied by 1 + scale * ln(1 + floor(p / length))."""

    scale: float
    length: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotate the heads of q and k by their positions; then k and v go to the cache.

    ``rotation`` is None where positions are not rotated; it turns the values of a head from
    ``first`` on. A head of v has ``value_dim`` values, 0: as many as one of k; ``value`` names the
    buffer, whose first values they are. ``stores`` False: there is no k and no v, for the attention
    reads another layer's.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotation: Rotation | None
    first: int = 0
    value_dim: int = 0
    value: str = "v"
    stores: bool = True
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
        """None of a layer's own: the tables' tensors belong to the model."""
        return {}


@dataclass(frozen=True, slots=True)
class Attention:
    """a = softmax(q K * scale) V over the cache, ``num_heads`` in ``num_kv_heads`` groups.

    Each token sees the positions up to its own, with a ``window`` only so many of them, itself
    included. ``both_ways``: it sees all of its text, with a ``reach`` only so many on each side.
    ``softcap`` c, where not 0: a score s becomes c * tanh(s / c). ``sinks``: a weight with one
    score a head that takes part in the softmax without a value. ``value_dim``: values of a head of
    V and of a, 0: as many as of q. ``cache_of``: the layer whose keys and values are read, None:
    its own.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: str = ""
    value_dim: int = 0
    cache_of: int | None = None
    both_ways: bool = False
    reach: int = 0

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

    The last is gpt-oss's, with limits. ``up`` "": gate = act(gate). ``first``: the value of up's
    row at which the factors begin.
    """

    activation: str
    width: int
    gate: str = "gate"
    up: str = "up"
    first: int = 0

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        widths = {self.gate: self.width}
        return widths | {self.up: self.first + self.width} if self.up else widths

    def weights(self) -> Shapes:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class Scale:
    """x = x * factor, and times the one value of ``weight`` where it is named."""

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
    """out = out + sigmoid(gate) * x, with one value of ``gate`` for a token."""

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

    The scores are the values of buffer ``scores``. ``gating``: their probabilities are the softmax
    or the sigmoid of all scores, or the softmax of the chosen ones ("softmax_chosen"). ``bias``
    names a tensor that is added for the choice alone. ``normalize`` divides the chosen weights by
    their sum, which is ``least_sum`` at least; ``scale`` multiplies them. ``num_groups`` of
    experts, of which ``groups_used`` are chosen from by the sum of their ``group_best`` best, one
    or two, where not 0.
    """

    scores: str
    num_experts: int
    per_token: int
    gating: Gating = "softmax"
    normalize: bool = True
    scale: float = 1.0
    bias: str = ""
    least_sum: float = 6.1e-5
    num_groups: int = 0
    groups_used: int = 0
    group_best: int = 2

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {self.scores: self.num_experts}

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.bias: (self.num_experts,)} if self.bias else {}


@dataclass(frozen=True, slots=True)
class ExpertLinear:
    """A linear of each of ``num_experts``, for the experts that ``Route`` chose for a token.

    Its weights have the shape (experts, rows, width), or are one tensor for each expert, with its
    number behind the name (``ffn_gate.3``). They may have a ``.bias`` (experts, rows) and a
    ``.scale`` (experts) beside. The buffers that products write have a row for each token and
    expert of it. ``spread``: x is a token's row, which all its experts share; else x has a row for
    each token and expert. ``scales_results``: a ``.scale`` is the model's own, of whatever the
    expert gives, rather than a part of how its weights are stored.
    """

    x: str
    width: int
    products: tuple[Product, ...]
    num_experts: int
    per_token: int
    spread: bool
    scales_results: bool = False

    def buffers(self) -> Widths:
        """Values of a row of each buffer that has a row for each token."""
        return {self.x: self.width} if self.spread else {}

    def expert_buffers(self) -> Widths:
        """Values of a row of each buffer that has a row for each token and expert of it."""
        widths = {product.out: product.rows for product in self.products}
        return widths if self.spread else widths | {self.x: self.width}

    def weights(self) -> Shapes:
        """Shape of each weight; of a fused one that of all its parts together."""
        rows: dict[str, int] = {}
        for product in self.products:
            end = product.first + product.rows
            rows[product.weight] = max(rows.get(product.weight, 0), end)
        return {name: (self.num_experts, count, self.width) for name, count in rows.items()}


@dataclass(frozen=True, slots=True)
class ExpertGated:
    """As ``Gated``, on rows of each token and expert. ``up`` "": gate = act(gate)."""

    activation: str
    width: int
    gate: str = "expert_gate"
    up: str = "expert_up"

    def buffers(self) -> Widths:
        """None that has a row for each token."""
        return {}

    def expert_buffers(self) -> Widths:
        """Values of a row of each buffer that has a row for each token and expert of it."""
        return dict.fromkeys(filter(None, (self.gate, self.up)), self.width)

    def weights(self) -> Shapes:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class Mix:
    """out = the sum of x's rows of a token's experts, each times its weight; ``add`` onto out."""

    x: str
    out: str
    width: int
    per_token: int
    add: bool = False

    def buffers(self) -> Widths:
        """Values of a row of each buffer that has a row for each token."""
        return {self.out: self.width}

    def expert_buffers(self) -> Widths:
        """Values of a row of each buffer that has a row for each token and expert of it."""
        return {self.x: self.width}

    def weights(self) -> Shapes:
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class CausalConv:
    """x = act(the convolution of each channel of x over the last ``taps`` tokens).

    The weight may have a ``.bias`` beside it. ``activation``: "silu", or "" for none.
    """

    x: str
    weight: str
    width: int
    taps: int
    activation: str = ""

    @property
    def state_width(self) -> int:
        """Float32 values of the state."""
        return self.width * (self.taps - 1)

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {self.x: self.width}

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.weight: (self.width, self.taps)}


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """out = the gated delta rule of a state of each of ``heads`` (ops/delta_rule.py).

    A row of x has queries and keys of ``key_heads`` heads of ``key_dim`` values each, then values
    of ``heads`` heads of ``value_dim``. ``beta`` and ``alpha`` have one value for each head.
    ``tiled``: head h goes with the head h % key_heads of keys, else with h // (heads / key_heads).
    Queries are multiplied by ``scale``.
    """

    x: str
    beta: str
    alpha: str
    out: str
    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    scale: float
    tiled: bool = False
    a: str = "ssm_a."
    bias: str = "ssm_dt.bias"

    @property
    def state_width(self) -> int:
        """Float32 values of the state."""
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
    """out = Mamba-2's selective scan of a state of each of ``heads`` (ops/selective_scan.py).

    A row of x has ``heads`` heads of ``head_dim`` values, then b and c of ``groups`` groups of
    ``key_dim`` values each. ``dt`` has one value for each head.
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
        """Float32 values of the state."""
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
    """As the kernels lay state out: a head's values are padded to 16."""
    return heads * keys * -(-values // 16) * 16


Recurrent = CausalConv | DeltaRule | SelectiveScan  # what keeps a state of a sequence
Operation = (
    Norm | Linear | HeadLinear | Copy | Rope | Attention | Gated | Scale | GatedAdd
    | CausalConv | DeltaRule | SelectiveScan
    | Route | ExpertLinear | ExpertGated | Mix
)  # fmt: skip
