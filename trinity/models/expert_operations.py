"""The operations of experts: their choice for each token, and rows of each token and expert."""

from __future__ import annotations

from dataclasses import dataclass

from trinity.config import Gating
from trinity.models.operations import Operation, Product, Shapes, Widths, rows_of


@dataclass(frozen=True, slots=True)
class Route(Operation):
    """Choose ``per_token`` of ``num_experts`` for each token, with their weights.

    ``gating``: probabilities are the softmax or the sigmoid of all scores, or the softmax of the
    chosen scores ("softmax_chosen"). "sparsemixer" chooses one expert after the other; the weight
    is the softmax of its score among those that are left and near it.
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
    groups_used: int = 0  # experts of this many groups can be chosen
    group_best: int = 2  # a group's rank is the sum of this many best scores

    def buffers(self) -> Widths:
        """The number of values per row of each buffer."""
        return {self.scores: self.num_experts}

    def weights(self) -> Shapes:
        """Shape of each weight."""
        return {self.bias: (self.num_experts,)} if self.bias else {}


@dataclass(frozen=True, slots=True)
class ExpertInput(Operation):
    """out = x times the expert's weight, a row for each token and expert."""

    x: str
    out: str
    width: int
    per_token: int

    def buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token."""
        return {self.x: self.width}

    def expert_buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token and expert."""
        return {self.out: self.width}


@dataclass(frozen=True, slots=True)
class ExpertLinear(Operation):
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
        """Values per row, for each buffer with one row per token."""
        return {self.x: self.width} if self.spread else {}

    def expert_buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token and expert."""
        widths = {product.out: product.rows for product in self.products}
        return widths if self.spread else widths | {self.x: self.width}

    def weights(self) -> Shapes:
        """Shape of each weight; a fused weight counts as a whole."""
        return {
            name: (self.num_experts, rows, self.width)
            for name, rows in rows_of(self.products).items()
        }


@dataclass(frozen=True, slots=True)
class ExpertGated(Operation):
    """As ``Gated``, for rows of each token and expert."""

    activation: str
    width: int
    gate: str = "expert_gate"
    up: str = "expert_up"  # "": gate = act(gate)

    def expert_buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token and expert."""
        return dict.fromkeys(filter(None, (self.gate, self.up)), self.width)


@dataclass(frozen=True, slots=True)
class Mix(Operation):
    """out = the sum of x's rows of a token's experts, each times the expert's weight."""

    x: str
    out: str
    width: int
    per_token: int
    add: bool = False  # add to the values in out
    weighted: bool = True  # False: without the weights

    def buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token."""
        return {self.out: self.width}

    def expert_buffers(self) -> Widths:
        """Values per row, for each buffer with one row per token and expert."""
        return {self.x: self.width}
