"""Where an engine gathers the squares of its linears' inputs, channel by channel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.weights import Weight

HEAD = "output.weight"


class ChannelSquares:
    """A buffer for every input that linears have; those that share an input share the buffer.

    Layers' weights are wanted, and the output head's with ``process_output`` where it is a matrix
    of its own. A buffer is as ``trinity_kernels.ops.squares`` fills it, (K + 1,) float64.
    """

    def __init__(self, process_output: bool = False) -> None:
        self._process_output = process_output
        self._buffers: dict[tuple[tuple[str, ...], ...], NDArray[np.float64]] = {}

    def buffer(self, weights: list[Weight]) -> NDArray[np.float64] | None:
        """The buffer of the input that ``weights`` share, None where none of them is wanted."""
        names = tuple(f"{weight.name}.weight" for weight in weights)
        if not names[0].startswith("blk.") and not (self._process_output and names == (HEAD,)):
            return None
        return self._of(tuple((name,) for name in names), 1, weights[0].k)

    def head_buffer(self, weight: Weight) -> NDArray[np.float64]:
        """As ``buffer``, of all matrices of a tensor that has one for each head."""
        return self._of(((f"{weight.name}.weight",),), weight.matrices, weight.k)

    def expert_buffer(self, weights: list[ExpertWeight]) -> NDArray[np.float64]:
        """As ``buffer``, of weights of experts."""
        tensors = tuple(weight.tensors for weight in weights)
        return self._of(tensors, weights[0].num_experts, weights[0].k)

    def _of(self, names: tuple[tuple[str, ...], ...], matrices: int, k: int) -> NDArray[np.float64]:
        if names not in self._buffers:
            self._buffers[names] = np.zeros((matrices, k + 1))
        return self._buffers[names]

    def take(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.int64]]]:
        """Sums (matrices, K) and numbers of rows (matrices,) of every tensor; zero from then on.

        A tensor with all experts or heads has a matrix for each, another one matrix. Tensors that
        share an input share the arrays.
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
