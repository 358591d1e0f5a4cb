"""The LoRA adapters of an engine: their matrices bound to the operations that they change.

The first matrices (A) that share an input are stacked, so that one product computes all of them.
Each step also needs the scale of each adapter for each row, and memory for the first matrices'
results, a row of float32 per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.errors import UnsupportedError
from trinity.formats.adapters import LoraAdapter, Pair
from trinity.formats.adapters.adapter import TYPES, as_float32
from trinity.formats.adapters.places import HEAD
from trinity.formats.tensor_names import beside, complete
from trinity.models.architecture import TokenTable
from trinity.models.decoder import Decoder
from trinity.models.expert_operations import ExpertLinear
from trinity.models.operations import HeadLinear, Linear, Operation, Product
from trinity.options.adapter_files import adapter_scales
from trinity.runtime.expert_weight import ExpertWeight
from trinity.runtime.memory import aligned, row_bytes
from trinity.runtime.pages.page import AdapterWeights
from trinity.runtime.weights import Weight, Weights

Factor = float | NDArray[np.float32]  # a factor of all results, or one for each expert's
Binding = Callable[[str, NDArray[Any], Any], "Weight | ExpertWeight"]


class Outer(NamedTuple):
    """A second matrix (B): the index of its product (or head), and the column where its input
    begins.
    """

    product: int
    weight: Weight | ExpertWeight
    column: int


@dataclass(frozen=True, slots=True)
class LoraDelta:
    """The products that one ``adapter`` adds to those of one operation.

    ``inner`` maps the operation's input to ``width`` values of a row, from ``column`` on. A linear
    with a matrix for each head has one inner matrix per head.
    """

    adapter: int
    column: int
    width: int
    inner: tuple[Weight | ExpertWeight, ...]
    outer: tuple[Outer, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices; for experts, of one expert's."""
        weights = (*self.inner, *(outer.weight for outer in self.outer))
        return sum(w.expert_bytes if isinstance(w, ExpertWeight) else w.nbytes for w in weights)


class Lookup(NamedTuple):
    """The embeddings that one ``adapter`` adds: a row for each token, times a matrix."""

    adapter: int
    buffer: str
    tokens: NDArray[np.float32]
    rows: NDArray[np.float32]  # of a step
    outer: Weight


class AdapterSet:
    """All adapters of an engine. ``rows`` is the maximum number of rows of a step.

    ``scales``: the scale of each adapter for requests that do not set it.
    Raises: UnsupportedError for a pair of matrices whose tensor no operation multiplies by.
    """

    def __init__(
        self, adapters: Sequence[LoraAdapter], scales: Sequence[float], decoder: Decoder,
        weights: Weights, tables: Sequence[TokenTable], rows: int,
    ) -> None:  # fmt: skip
        self.paths = tuple(adapter.path for adapter in adapters)
        self.scales = tuple(scales)
        count = len(adapters)
        self._pairs = [{pair.name: pair for pair in adapter.pairs} for adapter in adapters]
        self._read: set[str] = set()
        self._weights = weights
        self._width = self._expert_width = 0
        self.deltas: dict[tuple[str, Operation], list[LoraDelta]] = {}
        for prefix, operation in decoder.operations():
            deltas = self._bound(prefix, operation)
            if deltas:
                self.deltas[prefix, operation] = deltas
        self.head = self._of_head(decoder)
        self.lookups = self._lookups(tables, rows)
        for adapter in adapters:
            left = [pair.name for pair in adapter.pairs if pair.name not in self._read]
            if left:
                raise UnsupportedError(
                    f"{adapter.path}: it changes tensor {left[0]!r}, which is not a linear of "
                    f"{decoder.config.architecture!r} models"
                )
        del self._pairs  # The first matrices were copied when they were stacked.
        self.has_experts = self._expert_width > 0
        # Of a step: each row's scales, the number of rows of each adapter, the rows of its results.
        self.weights = np.zeros((count, rows), np.float32)
        self.tokens = np.zeros(count, np.int64)
        self.output_weights = np.zeros((count, rows), np.float32)
        self.outputs = np.zeros(count, np.int64)
        per_token = max((choice.per_token for choice in decoder.routes), default=0)
        self.places = np.arange(rows * max(1, per_token), dtype=np.int32)
        self.stride = row_bytes(self._width)
        self.buffer = aligned(rows * self.stride)
        experts = rows * per_token if self.has_experts else 0
        self.expert_stride = row_bytes(self._expert_width)
        self.expert_buffer = aligned(experts * self.expert_stride)
        spread = [op.width for _, op in self.deltas if isinstance(op, ExpertLinear) and op.spread]
        self.spread_stride = row_bytes(max(spread, default=0))
        self.spread = aligned(experts * self.spread_stride)
        self.row_weights = np.zeros((count, experts), np.float32)
        self.ones = np.ones(experts, np.float32)

    @property
    def token_bytes(self) -> int:
        """Bytes of matrices that decoding one token reads with the default scales.

        Only the experts that a token uses count. Rows of embeddings do not count.
        """
        nbytes = sum(
            delta.nbytes * (operation.per_token if isinstance(operation, ExpertLinear) else 1)
            for (_, operation), deltas in self.deltas.items()
            for delta in deltas
            if self.scales[delta.adapter]
        )
        nbytes += sum(delta.nbytes for delta in self.head if self.scales[delta.adapter])
        return nbytes + sum(
            lookup.outer.nbytes for lookup in self.lookups if self.scales[lookup.adapter]
        )

    def chosen(self, wanted: Mapping[int, float] | None) -> AdapterWeights:
        """The scales of a request; see ``adapter_scales``."""
        return adapter_scales(self.scales, wanted)

    def begin(self, pieces: Sequence[tuple[int, AdapterWeights]]) -> bool:
        """Set the adapters' scales for a step's rows; return whether any adapter is used.

        ``pieces``: the scales and the number of rows of each request.
        """
        if not any(weights for _, weights in pieces):
            return False
        end = 0
        for count, weights in pieces:
            start, end = end, end + count
            for number in range(len(self.paths)):
                self.weights[number, start:end] = weights[number] if weights else 0.0
        used = self.weights[:, :end].any(axis=1)
        self.tokens[:] = np.where(used, end, 0)
        return True

    def begin_outputs(self, rows: NDArray[np.int32]) -> None:
        """Set the adapters' scales for the rows that the output head computes."""
        count = len(rows)
        self.output_weights[:, :count] = self.weights[:, rows]
        self.outputs[:] = np.where(self.tokens > 0, count, 0)

    def look_up(self, ids: NDArray[np.integer[Any]]) -> None:
        """Write the adapters' embeddings of the tokens ``ids`` to the plan's buffer."""
        for lookup in self.lookups:
            if self.tokens[lookup.adapter]:
                rows = lookup.rows[: len(ids)]
                weights = self.weights[lookup.adapter, : len(ids), None]
                with np.errstate(over="ignore", invalid="ignore"):  # then the logits show it
                    np.multiply(lookup.tokens[ids], weights, out=rows)

    def forget_lookups(self, rows: NDArray[np.bool_]) -> None:
        """Undo ``look_up`` for rows that are no tokens."""
        for lookup in self.lookups:
            lookup.rows[: len(rows)][rows] = 0

    def _bound(self, prefix: str, operation: Operation) -> list[LoraDelta]:
        if isinstance(operation, Linear):
            deltas, width = self._linear(prefix, operation.products, _weight, operation.scale)
            self._width = max(self._width, width)
            return deltas
        if isinstance(operation, HeadLinear):
            return self._heads(prefix, operation)
        if isinstance(operation, ExpertLinear):
            deltas, width = self._linear(
                prefix, operation.products, _expert_weight, self._result_scales(prefix, operation)
            )
            self._expert_width = max(self._expert_width, width)
            return deltas
        return []

    def _linear(
        self, prefix: str, products: Sequence[Product], bind: Binding, factor: Factor
    ) -> tuple[list[LoraDelta], int]:
        """The deltas of products with a common input, and the width of their rows."""
        deltas, column = [], 0
        for number, names, pairs in self._of_each(prefix, products):
            first, outer = column, []
            for name, pair in zip(names, pairs, strict=True):
                whole = bind(pair.name, pair.b, pair.scale * factor)
                outer += [
                    Outer(index, whole.part(product.first, product.rows), column)
                    for index, product in enumerate(products)
                    if product.weight == name
                ]
                column += pair.b.shape[-1]
            inner = bind(pairs[0].name, _stack([pair.a for pair in pairs]), 1.0)
            deltas.append(LoraDelta(number, first, column - first, (inner,), tuple(outer)))
            column = _padded(column)
        return deltas, column

    def _result_scales(self, prefix: str, linear: ExpertLinear) -> Factor:
        """The factors of each expert's results."""
        name = prefix + beside(linear.products[0].weight, "scale")
        if not linear.scales_results or not self._weights.has(name):
            return 1.0
        return self._weights.vector(name, linear.num_experts)

    def _heads(self, prefix: str, linear: HeadLinear) -> list[LoraDelta]:
        deltas, column = [], 0
        product = (Product(linear.weight, linear.out, linear.rows),)
        for number, _, (pair,) in self._of_each(prefix, product):
            heads, rank = pair.a.shape[:2]
            inner = tuple(_weight(pair.name, a, 1.0) for a in pair.a)
            outer = tuple(
                Outer(head, _weight(pair.name, pair.b[head], pair.scale), column + head * rank)
                for head in range(heads)
            )
            deltas.append(LoraDelta(number, column, heads * rank, inner, outer))
            column = _padded(column + heads * rank)
        self._width = max(self._width, column)
        return deltas

    def _of_each(
        self, prefix: str, products: Sequence[Product]
    ) -> list[tuple[int, list[str], list[Pair]]]:
        """The adapters that change any of these products, with the names of the tensors they
        change.
        """
        changes = []
        for number, pairs in enumerate(self._pairs):
            names = [
                name
                for name in dict.fromkeys(product.weight for product in products)
                if prefix + complete(name) in pairs
            ]
            if names:
                whole = [prefix + complete(name) for name in names]
                self._read.update(whole)
                changes.append((number, names, [pairs[name] for name in whole]))
        return changes

    def _of_head(self, decoder: Decoder) -> list[LoraDelta]:
        config = decoder.config
        product = Product(HEAD.removesuffix(".weight"), "", config.vocab_size)
        factor = decoder.architecture.logit_scale(config)
        deltas, width = self._linear("", (product,), _weight, factor)
        self._width = max(self._width, width)
        return deltas

    def _lookups(self, tables: Sequence[TokenTable], rows: int) -> list[Lookup]:
        lookups = []
        for number, pairs in enumerate(self._pairs):
            for table in tables:
                pair = pairs.get(complete(table.weight))
                if pair is not None:
                    self._read.add(pair.name)
                    outer = _weight(pair.name, pair.b, pair.scale * table.scale)
                    room = np.zeros((rows, pair.a.shape[-1]), np.float32)
                    tokens = as_float32(pair.a)
                    lookups.append(Lookup(number, table.buffer, tokens, room, outer))
        return lookups


def _padded(column: int) -> int:
    """The next column that is a multiple of 64 bytes."""
    return -(-column // 16) * 16


def _stack(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack first matrices with a common input."""
    if len(parts) == 1:
        return parts[0]
    if len({part.dtype for part in parts}) > 1:
        parts = [as_float32(part) for part in parts]
    return np.concatenate(parts, axis=-2)


def _weight(name: str, array: NDArray[Any], scale: float) -> Weight:
    rows, width = array.shape
    data = array.reshape(-1).view(np.uint8)
    stride = width * array.itemsize
    return Weight(name, TYPES[str(array.dtype)], rows, width, data, stride, scale, None)


def _expert_weight(name: str, array: NDArray[Any], scale: Factor) -> ExpertWeight:
    count, rows, width = array.shape
    data = array.reshape(-1).view(np.uint8)
    stride = width * array.itemsize
    addresses = data.ctypes.data + np.arange(count) * (rows * stride)
    return ExpertWeight(
        (name,), TYPES[str(array.dtype)], rows, width, (data,), addresses, stride,
        np.full(count, scale, np.float64), None,
    )  # fmt: skip
