"""Activations of one buffer, which few families have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trinity.models.operations import Operation, Widths


@dataclass(frozen=True, slots=True)
class InPlace(Operation):
    """Replaces the ``width`` values of each row of x."""

    x: str
    width: int

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.x: self.width}


@dataclass(frozen=True, slots=True)
class XIELU(InPlace):
    """x = alpha_p x^2 + beta x for x > 0, else alpha_n (exp(min(x, eps)) - 1 - x) + beta x."""

    alpha_p: float
    alpha_n: float
    beta: float
    eps: float


@dataclass(frozen=True, slots=True)
class Softcap(InPlace):
    """x = cap * tanh(x / cap)."""

    cap: float = 1.0


@dataclass(frozen=True, slots=True)
class GaussianTop(InPlace):
    """x = max(x - (mean + factor * std), 0), with the mean and deviation of a row's values."""

    factor: float


@dataclass(frozen=True, slots=True)
class Clamp(InPlace):
    """x = x limited to ``low`` .. ``high``."""

    low: float
    high: float
    of_experts: bool = False
    """Whether the buffer has one row per token and expert, instead of one per token."""

    def buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token."""
        return {} if self.of_experts else {self.x: self.width}

    def expert_buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token and expert."""
        return {self.x: self.width} if self.of_experts else {}


@dataclass(frozen=True, slots=True)
class HeadGate(Operation):
    """x = act(gate) * x, with a value of gate for each of ``heads`` parts of ``width`` values."""

    activation: Literal["sigmoid", "softplus"]
    gate: str
    x: str
    heads: int
    width: int

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.gate: self.heads, self.x: self.heads * self.width}
