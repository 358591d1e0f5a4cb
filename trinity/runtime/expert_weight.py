"""Weights of experts, bound for the plan: the address of each expert's rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trinity_kernels.ops.matmul.activations import FORMS


@dataclass(frozen=True, slots=True)
class ExpertWeight:
    """The weights of one linear for E experts: N rows of K each, ``stride`` bytes apart.

    Shapes: ``addresses`` (E,), of each expert's first row; ``scales`` (E,); ``biases`` (E, N).
    ``tensors`` names the file's tensors, one for all experts or one for each. ``data`` keeps their
    memory alive.
    """

    tensors: tuple[str, ...]
    type: str
    n: int
    k: int
    data: tuple[NDArray[np.uint8], ...]
    addresses: NDArray[np.int64]
    stride: int
    scales: NDArray[np.float64]
    biases: NDArray[np.float32] | None

    @property
    def num_experts(self) -> int:
        """The number of experts, E."""
        return len(self.addresses)

    @property
    def form(self) -> str:
        """The form of activations that these weights multiply with."""
        return FORMS[self.type]

    @property
    def expert_bytes(self) -> int:
        """Bytes that one product with one expert reads."""
        return self.n * self.stride

    @property
    def nbytes(self) -> int:
        """Bytes of all experts."""
        return self.num_experts * self.expert_bytes

    def part(self, first: int, rows: int) -> ExpertWeight:
        """``rows`` rows of each expert, from row ``first`` on; no weight is copied."""
        biases = None if self.biases is None else self.biases[:, first : first + rows]
        return replace(self, n=rows, addresses=self.addresses + first * self.stride, biases=biases)
