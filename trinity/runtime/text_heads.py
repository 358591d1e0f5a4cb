"""What an embedder or a reranker makes of one hidden state: a vector, or the score of a pair.

Source: sentence-transformers' Dense; transformers' BertForSequenceClassification and
XLMRobertaForSequenceClassification; llama.cpp, llm_graph_context::build_pooling.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trinity.errors import ConfigError
from trinity.formats.provider import WeightProvider

Vector = NDArray[np.float64]
Head = Callable[[Vector], Vector]

_DENSE = ("dense_2", "dense_3")


class TextHeads:
    """The weights that a file has behind its hidden states of ``hidden_size`` values.

    ``size``: values of a vector of a text. ``labels``: how many scores a pair of texts gets, 0
    where the file has no classifier. ``lacks_pooler``: the classifier was trained behind a layer
    that the file may have lost (``cls.weight``).
    Raises: ConfigError where shapes do not fit each other.
    """

    def __init__(self, provider: WeightProvider, hidden_size: int) -> None:
        self._provider = provider
        self._names = frozenset(provider.tensor_names())
        self._dense: list[NDArray[np.float32]] = []
        self.size = hidden_size
        for name in _DENSE:
            if f"{name}.weight" in self._names:
                self._dense.append(self._matrix(name, self.size))
                self.size = len(self._dense[-1])
        self.labels, self.lacks_pooler = 0, False
        if "cls.output.weight" in self._names:
            output = self._matrix("cls.output", hidden_size)
            self.labels, self._output = len(output), output
            self._output_bias = self._vector("cls.output.bias", self.labels)
            self.lacks_pooler = "cls.weight" not in self._names
            if not self.lacks_pooler:
                self._pooler = self._matrix("cls", hidden_size)
                self._pooler_bias = self._vector("cls.bias", hidden_size)
                if len(self._pooler) != hidden_size:
                    raise self._error("cls.weight", f"{hidden_size} rows")

    def vector(self, pooled: Vector) -> Vector:
        """The vector of a text, (size,), of its pooled hidden states."""
        for matrix in self._dense:
            pooled = matrix @ pooled
        return pooled

    def scores(self, first: Vector) -> Vector:
        """The scores of a pair, (labels,), of its first token's hidden state."""
        if not self.lacks_pooler:
            first = np.tanh(self._pooler @ first + self._pooler_bias)
        return self._output @ first + self._output_bias

    def _matrix(self, name: str, width: int) -> NDArray[np.float32]:
        tensor = self._provider.tensor(f"{name}.weight")
        found = np.atleast_2d(tensor.dequantize().reshape(tensor.shape))
        if found.ndim != 2 or found.shape[1] != width:
            raise self._error(f"{name}.weight", f"rows of {width}")
        return found

    def _vector(self, name: str, length: int) -> NDArray[np.float32]:
        if name not in self._names:
            return np.zeros(length, np.float32)
        found = self._provider.tensor(name).dequantize().reshape(-1)
        if len(found) != length:
            raise self._error(name, f"{length} values")
        return found

    def _error(self, name: str, expected: str) -> ConfigError:
        return ConfigError(
            f"{self._provider.path}: tensor {name!r} has shape {self._provider.tensor(name).shape},"
            f" but the metadata implies {expected}; the file contradicts itself: convert the model "
            "again"
        )
