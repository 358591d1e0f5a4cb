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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from trinity.config import NO_SCALING, RopeScaling

Widths = Mapping[str, int]
Shapes = Mapping[str, tuple[int, ...]]


class Operation:
    """An operation of a layer."""

    __slots__ = ()

    def buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token."""
        return {}

    def expert_buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token and expert."""
        return {}

    def weights(self) -> Shapes:
        """Shape of each weight, rows first; a fused weight counts as a whole."""
        return {}


@dataclass(frozen=True, slots=True)
class Norm(Operation):
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
        """The number of values per row of each buffer."""
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


def rows_of(products: Iterable[Product]) -> dict[str, int]:
    """Return the number of rows of each weight of the products."""
    rows: dict[str, int] = {}
    for product in products:
        rows[product.weight] = max(rows.get(product.weight, 0), product.first + product.rows)
    return rows


@dataclass(frozen=True, slots=True)
class Linear(Operation):
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
        """The number of values per row of each buffer."""
        return {self.x: self.width} | {product.out: product.rows for product in self.products}

    def weights(self) -> Shapes:
        """Shape of each weight, rows first; a fused weight counts as a whole."""
        return {name: (rows, self.width) for name, rows in rows_of(self.products).items()}


@dataclass(frozen=True, slots=True)
class Hadamard(Operation):
    """out = H (s * x) in blocks, or its inverse s * (H x): see WeightRotation of the configuration.

    ``out`` may be ``x``.
    """

    x: str
    out: str
    width: int
    inverse: bool = False

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.x: self.width, self.out: self.width}


@dataclass(frozen=True, slots=True)
class HeadLinear(Operation):
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
        """The number of values per row of each buffer."""
        return {self.x: self.heads * self.x_step, self.out: self.heads * self.out_step}

    def weights(self) -> Shapes:
        """Shape of each weight, rows first."""
        return {self.weight: (self.heads, self.rows, self.width)}


@dataclass(frozen=True, slots=True)
class Copy(Operation):
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
        """The number of values per row of each buffer."""
        last = self.groups - 1
        return {
            self.x: self.x_first + last * self.x_step + self.width,
            self.out: self.out_first + last * self.out_step + self.width,
        }


@dataclass(frozen=True, slots=True)
class Rotation:
    """A table of rotations: pair i of ``dim`` values turns by position * theta ** (-2 i / dim)."""

    theta: float
    dim: int
    scaling: RopeScaling = NO_SCALING
    factors: str = ""  # a tensor of dim / 2 divisors of the frequencies; optional in the file
    long_factors: str = ""
    """Replaces ``factors`` if the context exceeds ``scaling.original_context_length`` tokens."""
    stored_factors: int = 0
    """Values of the tensor, of which the first dim / 2 count; 0: it has no others."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """A factor of the queries at position p: 1 + scale * ln(1 + floor((p + offset) / length))."""

    scale: float
    length: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Rope(Operation):
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
        """The number of values per row of each buffer."""
        widths = {"q": self.num_heads * self.head_dim}
        if self.stores:
            widths["k"] = self.num_kv_heads * self.head_dim
            values = self.num_kv_heads * (self.value_dim or self.head_dim)
            widths[self.value] = max(widths.get(self.value, 0), values)
        return widths


@dataclass(frozen=True, slots=True)
class Attention(Operation):
    """a = softmax(q K * scale) V over the cache; ``num_heads`` share ``num_kv_heads``.

    A token attends to the positions up to its own.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int = 0  # attends to this many last positions, its own included; 0: to all
    softcap: float = 0.0  # c, if not 0: a score s becomes c * tanh(s / c)
    sinks: str = ""  # a weight of one score per head that joins the softmax without a value
    value_dim: int = 0  # values of a head of V and of a; 0: as many as of q
    cache_of: int | None = None  # the layer whose keys and values are read; None: its own
    both_ways: bool = False  # a token attends to its whole text
    reach: int | None = None  # with both_ways: positions on each side that it sees; None: all
    chunked: bool = False
    """Positions are divided into chunks of ``window``, and a token attends to its own chunk."""

    @property
    def width_of_values(self) -> int:
        """The number of values per head of V."""
        return self.value_dim or self.head_dim

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {"q": self.num_heads * self.head_dim, "a": self.num_heads * self.width_of_values}

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.sinks: (self.num_heads,)} if self.sinks else {}


@dataclass(frozen=True, slots=True)
class Gated(Operation):
    """gate = act(gate) * up; silu, gelu (tanh form), gelu_erf, relu2, sigmoid, none, swiglu_oai.

    swiglu_oai is that of gpt-oss, swiglu_7 is Maple's; both limit gate and up to 7.
    """

    activation: str
    width: int
    gate: str = "gate"
    up: str = "up"  # "": gate = act(gate)
    first: int = 0  # the first value of up's row that is used

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        widths = {self.gate: self.width}
        return widths | {self.up: self.first + self.width} if self.up else widths


@dataclass(frozen=True, slots=True)
class Scale(Operation):
    """x = x * factor, also times the value of ``weight`` if it is named."""

    x: str
    width: int
    factor: float = 1.0
    weight: str = ""

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.x: self.width}

    def weights(self) -> Shapes:
        """Shape of the weight."""
        return {self.weight: (1,)} if self.weight else {}


@dataclass(frozen=True, slots=True)
class Add(Operation):
    """out = (out + x) * factor, for ``groups`` parts of out, the first from value out_first on."""

    x: str
    out: str
    width: int
    factor: float = 1.0
    x_first: int = 0
    out_first: int = 0
    groups: int = 1

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {
            self.x: self.x_first + self.width,
            self.out: self.out_first + self.groups * self.width,
        }


@dataclass(frozen=True, slots=True)
class GatedAdd(Operation):
    """out = out + sigmoid(gate) * x; ``gate`` has one value per token."""

    gate: str
    x: str
    out: str
    width: int

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.gate: 1, self.x: self.width, self.out: self.width}
