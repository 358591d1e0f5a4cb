"""The vocabulary in which a family says what its layers compute.

An operation carries its parameters and states the shapes of what it reads and writes: buffers,
the binding of tensors and the check of a file against its configuration follow from these.

Buffers are named and hold a row of float32 for each token: ``x`` is the residual stream, ``h`` a
normalized copy of it, ``q``, ``k``, ``v`` the projections, ``a`` the attention's result, ``gate``
and ``up`` the feed-forward's halves. Weights are named as in the file, without ``blk.N.`` and
without ``.weight``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trinity.config import NO_SCALING, RopeScaling

Widths = Mapping[str, int]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Norm:
    """out = RMSNorm(x) * weight, over each of ``groups`` vectors of ``width`` values in a row.

    ``add`` adds the result onto out instead.
    """

    x: str
    weight: str
    out: str
    width: int
    groups: int = 1
    add: bool = False

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return dict.fromkeys((self.x, self.out), self.width * self.groups)

    def weights(self) -> Shapes:
        """Shape of each weight, rows first."""
        return {self.weight: (self.width,)}


@dataclass(frozen=True, slots=True)
class Product:
    """``rows`` rows of a weight, from row ``first`` on: what goes to the buffer ``out``."""

    weight: str
    out: str
    rows: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class Linear:
    """out = weight @ x for each of ``products``, which share x, a row of ``width`` values.

    A weight may have a ``.bias`` and a ``.scale`` beside it. ``add`` adds the results onto out.
    """

    x: str
    width: int
    products: tuple[Product, ...]
    add: bool = False

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
class Rope:
    """Rotate the heads of q and k by their positions; then k and v go to the cache.

    ``rotation`` is None where positions are not rotated.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotation: Rotation | None

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        kv = self.num_kv_heads * self.head_dim
        return {"q": self.num_heads * self.head_dim, "k": kv, "v": kv}

    def weights(self) -> Shapes:
        """None of a layer's own: the tables' tensors belong to the model."""
        return {}


@dataclass(frozen=True, slots=True)
class Attention:
    """a = softmax(q K * scale) V over the cache, causal, ``num_heads`` in ``num_kv_heads`` groups.

    ``window``: each token sees only so many positions, itself included; 0: all. ``softcap`` c,
    where not 0: a score s becomes c * tanh(s / c). ``sinks``: a weight with one score a head that
    takes part in the softmax without a value.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    softcap: float = 0.0
    sinks: str = ""

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return dict.fromkeys(("q", "a"), self.num_heads * self.head_dim)

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.sinks: (self.num_heads,)} if self.sinks else {}


@dataclass(frozen=True, slots=True)
class Gated:
    """gate = act(gate) * up, with act one of silu, gelu (tanh form), relu2."""

    activation: str
    width: int

    def buffers(self) -> Widths:
        """Values of a row of each buffer."""
        return {"gate": self.width, "up": self.width}

    def weights(self) -> Shapes:
        """None."""
        return {}


Operation = Norm | Linear | Rope | Attention | Gated
