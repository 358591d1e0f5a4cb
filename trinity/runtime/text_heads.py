"""The layers after the pooling of embedders and rerankers: to an embedding or to a score.

Source: sentence-transformers' Dense and LogitScore; transformers' BertForSequenceClassification,
XLMRobertaForSequenceClassification and GenericForSequenceClassification; llama.cpp,
llm_graph_context::build_pooling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.config import POOLING_RANK
from trinity.errors import ConfigError
from trinity.formats.provider import WeightProvider
from trinity.formats.text_rules import activation_key

Vector = NDArray[np.float64]
Head = Callable[[Vector], Vector]

_DENSE = ("dense_2", "dense_3")
_SEVERAL = "multi_label_classification"
# By the last part of torch.nn's names.
_ACTIVATIONS: dict[object, Head] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
    "SiLU": lambda x: x * np.exp(-np.logaddexp(0, -x)),
    "GELU": lambda x: 0.5 * x * (1 + np.array([math.erf(value / math.sqrt(2)) for value in x])),
}


class _Dense(NamedTuple):
    """A dense layer with an activation."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    activation: Head


class TextHeads:
    """The layers of a model's file that follow its hidden states of ``hidden_size`` values.

    ``size``: the number of values of an embedding. ``labels``: the rows of the classifier, 0
    without one, and ``names`` their names. ``several``: more than one may apply to a text.
    ``has_pooler``: a layer (``cls.weight``) comes before the classifier.
    ``padding_id``: the padding token, or None.
    Raises: ConfigError if shapes do not fit together.
    """

    def __init__(self, provider: WeightProvider, hidden_size: int) -> None:
        self._provider = provider
        self._names = frozenset(provider.tensor_names())
        self._dense: list[_Dense] = []
        self.size = hidden_size
        for name in _DENSE:
            if f"{name}.weight" in self._names:
                self._dense.append(self._layer(name, self.size))
                self.size = len(self._dense[-1].weight)
        self.padding_id = provider.metadata.get("tokenizer.ggml.padding_token_id")
        self.labels, self.has_pooler = 0, "cls.weight" in self._names
        if "cls.output.weight" in self._names:
            output = self._matrix("cls.output", hidden_size)
            self.labels, self._output = len(output), output
            self._output_bias = self._vector("cls.output.bias", self.labels)
            if self.has_pooler:
                self._pooler = self._matrix("cls", hidden_size)
                self._pooler_bias = self._vector("cls.bias", hidden_size)
                if len(self._pooler) != hidden_size:
                    raise self._error("cls.weight", f"{hidden_size} rows")
        prefix = f"{provider.metadata.get('general.architecture')}.classifier."
        named = provider.metadata.get(f"{prefix}output_labels")
        names = [one for one in named if isinstance(one, str)] if isinstance(named, list) else []
        if len(names) != self.labels:
            names = [f"LABEL_{i}" for i in range(self.labels)]  # as in transformers
        self.names = tuple(names)
        self.several = provider.metadata.get(f"{prefix}problem_type") == _SEVERAL

    def vector(self, pooled: Vector) -> Vector:
        """The embedding, (size,), of pooled hidden states."""
        for layer in self._dense:
            pooled = layer.activation(layer.weight @ pooled + layer.bias)
        return pooled

    @property
    def ranks(self) -> bool:
        """Whether ``score`` tells how well a text answers a query.

        This holds for one row, and for two rows if pooling_type says that the model ranks.
        """
        metadata = self._provider.metadata
        said = metadata.get(f"{metadata.get('general.architecture')}.pooling_type")
        return self.labels == 1 or (self.labels == 2 and said == POOLING_RANK)

    def score(self, state: Vector) -> Vector:
        """The score of a pair, (1,), from the hidden state of its first or last token.

        With one row it is the logit; with two rows the probability of the first.
        """
        outputs = self.outputs(state)
        if self.labels == 1:
            return outputs
        return np.exp(-np.logaddexp(0.0, outputs[1:] - outputs[:1]))

    def outputs(self, state: Vector) -> Vector:
        """The logits of all labels from the hidden state of a text's first or last token."""
        if self.has_pooler:
            state = np.tanh(self._pooler @ state + self._pooler_bias)
        return self._output @ state + self._output_bias

    def probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The probabilities of the labels, (n_texts, labels), from their logits.

        Those of a text sum to 1, unless several labels may apply or there is only one.
        """
        if self.several or self.labels == 1:
            return np.exp(-np.logaddexp(np.float32(0), -logits))
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(shifted / shifted.sum(1, keepdims=True), np.float32)

    def _layer(self, name: str, width: int) -> _Dense:
        weight = self._matrix(name, width)
        bias = self._vector(f"{name}.bias", len(weight))
        function = self._provider.metadata.get(activation_key(name), "Identity")
        if function not in _ACTIVATIONS:
            raise ConfigError(
                f"{self._provider.path}: {activation_key(name)} is {function!r:.40}; it must be "
                f"one of {', '.join(map(str, _ACTIVATIONS))}"
            )
        return _Dense(weight, bias, _ACTIVATIONS[function])

    def _matrix(self, name: str, width: int) -> NDArray[np.float32]:
        tensor = self._provider.tensor(f"{name}.weight")
        matrix = np.atleast_2d(tensor.dequantize().reshape(tensor.shape))
        if matrix.ndim != 2 or matrix.shape[1] != width:
            raise self._error(f"{name}.weight", f"rows of {width}")
        return matrix

    def _vector(self, name: str, length: int) -> NDArray[np.float32]:
        if name not in self._names:
            return np.zeros(length, np.float32)
        vector = self._provider.tensor(name).dequantize().reshape(-1)
        if len(vector) != length:
            raise self._error(name, f"{length} values")
        return vector

    def _error(self, name: str, expected: str) -> ConfigError:
        return ConfigError(
            f"{self._provider.path}: tensor {name!r} has shape {self._provider.tensor(name).shape},"
            f" but the metadata implies {expected}; the file contradicts itself: convert the model "
            "again"
        )
