"""Sums of squares of the inputs of an engine's linears, for each channel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.weights import Weight

HEAD = "output.weight"


class ChannelSquares:
    """A buffer of sums for every input of linears; linears that share an input share the buffer.

    The layers' linears are included, and with ``process_output`` the output head if it has its own
    matrix. A buffer is (K + 1,) float64; see ``trinity_kernels.ops.squares``.
    """

    def __init__(self, process_output: bool = False) -> None:
        self._process_output = process_output
        self._buffers: dict[tuple[tuple[str, ...], ...], NDArray[np.float64]] = {}

    def buffer(self, weights: list[Weight]) -> NDArray[np.float64] | None:
        """The buffer of the input that ``weights`` share; None if none of them is included."""
        names = tuple(f"{weight.name}.weight" for weight in weights)
        if not names[0].startswith("blk.") and not (self._process_output and names == (HEAD,)):
            return None
        return self._of(tuple((name,) for name in names), 1, weights[0].k)

    def head_buffer(self, weight: Weight) -> NDArray[np.float64]:
        """The buffers for a tensor with a matrix for each head."""
        return self._of(((f"{weight.name}.weight",),), weight.matrices, weight.k)

    def expert_buffer(self, weights: list[ExpertWeight]) -> NDArray[np.float64]:
        """The buffer for weights of experts."""
        tensors = tuple(weight.tensors for weight in weights)
        return self._of(tensors, weights[0].num_experts, weights[0].k)

    def _of(self, names: tuple[tuple[str, ...], ...], matrices: int, k: int) -> NDArray[np.float64]:
        if names not in self._buffers:
            self._buffers[names] = np.zeros((matrices, k + 1))
        return self._buffers[names]

    def take(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Return the sums (matrices, K) and row counts (matrices,) of every tensor, and reset them.

        A tensor of experts or heads has one matrix per expert or head, any other tensor one matrix.
        Tensors that share an input share the arrays.
        """
        taken: dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]] = {}
        for names, buffer in self._buffers.items():
            sums, counts = buffer[:, :-1].copy(), buffer[:, -1].astype(np.int64)
            parts = [(sums, counts)]
            if len(names[0]) > 1:
                parts = [(sums[i : i + 1], counts[i : i + 1]) for i in range(len(sums))]
            for tensors in names:
                taken.update(zip(tensors, parts, strict=True))
            buffer[:] = 0
        return taken
