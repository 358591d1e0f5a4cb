"""Token embeddings, with which a step begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trinity.errors import UnsupportedError
from trinity.runtime.weights import Weights
from trinity_kernels.quants import TYPES


class TokenEmbedding:
    """The rows of the tensor ``name``, of shape (count, width), times ``scale``.

    ``fewer``: there are other tokens, too, which get row 0.
    """

    def __init__(
        self, weights: Weights, name: str, count: int, width: int, scale: float | np.float32,
        fewer: bool = False,
    ) -> None:  # fmt: skip
        tensor = weights.matrix(name, count, width)
        self._type = TYPES[tensor.type]
        if self._type.tensor_scale:  # one sequence of codes without rows to look up
            raise UnsupportedError(
                f"{tensor.source}: tensor {name!r} has type {tensor.type}, which trinity supports "
                "in layers but not for embeddings; use a file with embeddings of another type"
            )
        self._width = width
        self._fewer = fewer
        self.scale = np.float32(scale)
        size = self._type.nbytes((1, width))
        self._rows = tensor.data[: size * count].reshape(count, size)

    def put(self, ids: NDArray[np.integer], out: NDArray[np.float32]) -> None:
        """Write the rows of the tokens ``ids`` to the first rows of ``out``, (rows, width)."""
        if self._fewer:
            ids = np.where(ids < len(self._rows), ids, 0)
        out[: len(ids)] = self.rows(ids)

    def rows(self, ids: NDArray[np.integer]) -> NDArray[np.float32]:
        """The rows of ``ids``, (len(ids), width); only these are dequantized."""
        rows = np.ascontiguousarray(self._rows[ids])
        values = self._type.dequantize(rows.reshape(-1), (len(ids), self._width))
        if self.scale != 1:
            with np.errstate(over="ignore", invalid="ignore"):  # overflow shows in the logits
                values = values * self.scale
        return values
