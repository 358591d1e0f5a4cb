"""The words in which an architecture says what one decoder layer computes.

Buffers are named: ``x`` is the residual stream, ``h`` a normalized copy of it, ``q``, ``k``, ``v``
the projections, ``a`` the attention's result, ``gate`` and ``up`` the feed-forward's halves.
Weights are named as in the file without ``blk.N.`` and ``.weight``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Norm:
    """out = RMSNorm(x) * weight."""

    x: str
    weight: str
    out: str


@dataclass(frozen=True, slots=True)
class Linear:
    """out = weight @ x (+ bias) for each (weight, out); all share x. ``add`` adds onto out."""

    x: str
    outputs: tuple[tuple[str, str], ...]
    add: bool = False


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """RMSNorm of each head of ``x`` by one weight of head_dim, in place."""

    x: str
    weight: str


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotate q and k by their positions; k and v go to the cache."""


@dataclass(frozen=True, slots=True)
class Attention:
    """a = softmax(q K / sqrt(head_dim)) V over the cache, causal, heads grouped."""


@dataclass(frozen=True, slots=True)
class Gated:
    """gate = act(gate) * up, with act one of silu, gelu, relu2."""

    activation: str


Operation = Norm | Linear | HeadNorm | Rope | Attention | Gated


@dataclass(frozen=True, slots=True)
class Architecture:
    """One decoder family.

    ``names``: the values of ``general.architecture`` that mean it. ``layer``: the operations of a
    layer, given which weights the file has. ``rope_halves``: dimensions (i, i + n/2) rotate
    together, else neighbours (2i, 2i+1), as the family's GGUF files have it.
    """

    names: tuple[str, ...]
    layer: Callable[[Callable[[str], bool]], list[Operation]]
    rope_halves: bool


def attention_input(has: Callable[[str], bool]) -> list[Operation]:
    """Norm, projections, optional per-head norms, rotation and attention: every family's start."""
    operations: list[Operation] = [
        Norm("x", "attn_norm", "h"),
        Linear("h", (("attn_q", "q"), ("attn_k", "k"), ("attn_v", "v"))),
    ]
    if has("attn_q_norm"):
        operations.append(HeadNorm("q", "attn_q_norm"))
    if has("attn_k_norm"):
        operations.append(HeadNorm("k", "attn_k_norm"))
    return [*operations, Rope(), Attention()]
