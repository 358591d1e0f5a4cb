"""The operations with a recurrent state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from trinity.models.operations import Operation, Shapes, Widths


class Recurrent(Operation, ABC):
    """An operation with a recurrent state."""

    __slots__ = ()

    @property
    @abstractmethod
    def state_width(self) -> int:
        """The number of float32 values of the state."""


@dataclass(frozen=True, slots=True)
class CausalConv(Recurrent):
    """x = act(the convolution of each channel of x over the last ``taps`` tokens).

    The weight may have a ``.bias``.
    """

    x: str
    weight: str
    width: int
    taps: int
    activation: str = ""  # "silu", or "" for none
    nested: bool = False  # the file's weight has a dimension of 1 before the taps

    @property
    def state_width(self) -> int:
        """The number of float32 values of the state."""
        return self.width * (self.taps - 1)

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.x: self.width}

    def weights(self) -> Shapes:
        """Shape of each weight."""
        inner = (1, self.taps) if self.nested else (self.taps,)
        return {self.weight: (self.width, *inner)}


@dataclass(frozen=True, slots=True)
class DeltaRule(Recurrent):
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
        """The number of values per row of each buffer."""
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
class ChannelDecay(Operation):
    """x = exp(a * softplus(x + bias)): a decay for each of ``keys`` values of each head."""

    x: str
    heads: int
    keys: int
    a: str = "ssm_a."
    bias: str = "ssm_dt.bias"

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.x: self.heads * self.keys}

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.a: (self.heads, 1), self.bias: (self.heads * self.keys,)}


@dataclass(frozen=True, slots=True)
class ChannelDeltaRule(Recurrent):
    """out = the delta rule with a decay for each key (ops/channel_delta_rule.py).

    ``q``, ``k`` and ``decay`` have ``key_dim`` values per head, ``beta`` has one.
    """

    q: str
    k: str
    v: str
    beta: str
    decay: str
    out: str
    heads: int
    key_dim: int
    value_dim: int
    scale: float  # multiplies the queries

    @property
    def state_width(self) -> int:
        """The number of float32 values of the state."""
        return _state_values(self.heads, self.key_dim, self.value_dim)

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {
            **dict.fromkeys((self.q, self.k, self.decay), self.heads * self.key_dim),
            **dict.fromkeys((self.v, self.out), self.heads * self.value_dim),
            self.beta: self.heads,
        }


@dataclass(frozen=True, slots=True)
class SelectiveScan(Recurrent):
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
        """The number of values per row of each buffer."""
        values = self.heads * self.head_dim
        return {
            self.x: values + 2 * self.groups * self.key_dim,
            self.dt: self.heads,
            self.out: values,
        }

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return dict.fromkeys((self.a, self.d, self.bias), (self.heads,))


@dataclass(frozen=True, slots=True)
class ChannelScan(Recurrent):
    """out = Mamba-1's selective scan, with a state for each channel (ops/channel_scan.py).

    ``b`` and ``c`` have ``key_dim`` values. ``dt`` has one per channel, and is changed.
    """

    x: str
    b: str
    c: str
    dt: str
    out: str
    width: int
    key_dim: int
    a: str = "ssm_a."
    d: str = "ssm_d."

    @property
    def state_width(self) -> int:
        """The number of float32 values of the state."""
        return _state_values(1, self.key_dim, self.width)

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {
            **dict.fromkeys((self.x, self.dt, self.out), self.width),
            **dict.fromkeys((self.b, self.c), self.key_dim),
        }

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.a: (self.width, self.key_dim), self.d: (self.width,)}


@dataclass(frozen=True, slots=True)
class TokenShift(Recurrent):
    """Each of ``outs`` = x + (x of the token before - x) * its row of the weight."""

    x: str
    outs: tuple[str, ...]
    weight: str
    width: int

    @property
    def state_width(self) -> int:
        """The number of float32 values of the state."""
        return self.width

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return dict.fromkeys((self.x, *self.outs), self.width)

    def weights(self) -> Shapes:
        """Shape of the weight."""
        several = (len(self.outs), 1, 1) if len(self.outs) > 1 else ()
        return {self.weight: (*several, self.width)}


@dataclass(frozen=True, slots=True)
class RwkvKeys(Operation):
    """The decays, keys and values of each head. Layers after the first mix in the first's values.

    Source of the formulas: ops/rwkv.py. Buffers: ``w``, ``k``, ``v`` and ``a``, which are changed;
    ``keys``; ``v_first`` and ``v_mix``.
    """

    heads: int
    size: int
    first: bool
    rank: int  # of weights that the first layer has and does not use

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        names = ("w", "k", "v", "a", "keys", "v_first", *(() if self.first else ("v_mix",)))
        return dict.fromkeys(names, self.heads * self.size)

    def weights(self) -> Shapes:
        """Shape of each weight."""
        hidden, names = self.heads * self.size, ("w0", "a0", "v0", "k_k", "k_a")
        vectors = {f"time_mix_{name}": (hidden,) for name in names}
        if not self.first:
            return vectors
        return vectors | {"time_mix_v1": (self.rank, hidden), "time_mix_v2": (hidden, self.rank)}


@dataclass(frozen=True, slots=True)
class HeadStates(Recurrent):
    """An operation with a square of ``size`` x ``size`` values for each head."""

    heads: int
    size: int

    @property
    def state_width(self) -> int:
        """The number of float32 values of the state."""
        return _state_values(self.heads, self.size, self.size)


@dataclass(frozen=True, slots=True)
class RwkvRule(HeadStates):
    """Update the state by ``w``, ``k``, ``v``, ``a``, ``keys``; then read it by ``r`` into ``o``.

    Source of the formulas: ops/rwkv.py.
    """

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return dict.fromkeys(("r", "w", "k", "v", "a", "keys", "o"), self.heads * self.size)


@dataclass(frozen=True, slots=True)
class RwkvOutput(Operation):
    """o = norm(o) + v * (r . k r_k), times ``g`` if it is ``gated``."""

    heads: int
    size: int
    gated: bool
    eps: float

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        names = ("r", "k", "v", "o", *(("g",) if self.gated else ()))
        return dict.fromkeys(names, self.heads * self.size)

    def weights(self) -> Shapes:
        """Shape of each weight."""
        names = ("time_mix_r_k", "time_mix_ln", "time_mix_ln.bias")
        return dict.fromkeys(names, (self.heads * self.size,))


@dataclass(frozen=True, slots=True)
class ShiftBy(TokenShift):
    """As ``TokenShift``, with a token's own numbers added to the weight: ``delta``.

    ``delta`` has ``width`` values for each part; those of ``outs`` begin at part ``first``.
    """

    delta: str = ""
    first: int = 0

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        widths = dict.fromkeys((self.x, *self.outs), self.width)
        return {**widths, self.delta: (self.first + len(self.outs)) * self.width}


@dataclass(frozen=True, slots=True)
class Wkv6Decay(Operation):
    """w = exp(-exp(w + the weight time_mix_decay))."""

    heads: int
    size: int

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {"w": self.heads * self.size}

    def weights(self) -> Shapes:
        """Shape of the weight."""
        return {"time_mix_decay": (self.heads * self.size,)}


@dataclass(frozen=True, slots=True)
class Wkv6Rule(HeadStates):
    """Read the state and the present ``k`` and ``v`` by ``r`` into ``o``; then update the state.

    Source of the formulas: ops/rwkv6.py.
    """

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return dict.fromkeys(("r", "w", "k", "v", "o"), self.heads * self.size)

    def weights(self) -> Shapes:
        """Shape of the weight."""
        return {"time_mix_first": (self.heads, self.size)}


@dataclass(frozen=True, slots=True)
class Wkv6Norm(Operation):
    """o = norm(o), for each head."""

    heads: int
    size: int
    eps: float

    def buffers(self) -> Widths:
        """The number of values per row of the buffer."""
        return {"o": self.heads * self.size}

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return dict.fromkeys(("time_mix_ln", "time_mix_ln.bias"), (self.heads * self.size,))


def _state_values(heads: int, keys: int, values: int) -> int:
    """The size of a state in the kernels, which pad the values of a head to 16."""
    return heads * keys * -(-values // 16) * 16
