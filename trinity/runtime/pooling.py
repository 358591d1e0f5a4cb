"""The sequence that gives one vector for all of its tokens."""

from __future__ import annotations

from collections import abc
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.runtime.cancel import Cancel
from trinity.runtime.generation import FinishReason
from trinity.runtime.inbox import Sink
from trinity.runtime.page import AdapterWeights
from trinity.runtime.sequence import Sequence, States
from trinity.runtime.text_heads import Head

if TYPE_CHECKING:
    from trinity.runtime.kv_cache import KVCache

Pooling = Literal["mean", "cls", "last"]


class Pooled(Sequence):
    """One vector (hidden_size,) float32 of the hidden states behind the output norm.

    ``pooling``: "mean" of all tokens' states, "cls" the first one's, "last" the last one's.
    ``skip``: so many tokens at the beginning take no part; one at least does.
    ``head``: what is made of that, of which the first ``dimensions`` count. ``normalize`` divides
    by the Euclidean norm; a vector of zeros stays as it is. ``encodes``: the text is evaluated in
    one step; ``second``: where the second text of a pair begins.
    It fails with a TrinityError where the model's output is not finite.
    Source: llama.cpp, llm_graph_context::build_pooling and common_embd_normalize.
    """

    of_states = True

    def __init__(
        self, tokens: list[int], sink: Sink, pooling: Pooling, normalize: bool,
        cancel: Cancel | None = None, adapters: AdapterWeights | None = None, *,
        head: Head | None = None, encodes: bool = False, second: int | None = None,
        priority: int = 0, skip: int = 0, dimensions: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(tokens, sink, priority=priority, cancel=cancel, adapters=adapters)
        self._skip = min(skip, len(tokens) - 1)
        self.whole, self.second = encodes, second
        self._head, self._dimensions = head, dimensions
        self._pooling = pooling
        self._normalize = normalize
        self._vector: NDArray[np.float64] | None = None

    @property
    def first(self) -> int:
        """All states are wanted."""
        return 0

    def start(self, cache: KVCache) -> None:
        """Begin, or begin anew."""
        super().start(cache)
        self._vector = None

    def finish(self, reason: FinishReason) -> None:
        """End without a result, which is None then."""
        self.end(None)

    def advance(self, states: States) -> None:
        """Add them up, or keep the one that is wanted."""
        assert self.cache is not None
        states = states[max(0, self._skip - (self.cache.length - len(states))) :]
        if len(states):
            self._add(states)
        if self.cache.length == len(self.tokens):
            assert self._vector is not None
            self.end(self._result(self._vector))

    def _add(self, states: States) -> None:
        if self._pooling == "mean":
            added = states.sum(axis=0, dtype=np.float64)
            self._vector = added if self._vector is None else self._vector + added
        elif self._pooling == "last" or self._vector is None:
            self._vector = states[-1 if self._pooling == "last" else 0].astype(np.float64)

    def _result(self, vector: NDArray[np.float64]) -> NDArray[np.float32]:
        if not np.isfinite(vector).all():
            raise TrinityError(
                "the model's hidden states are not finite: the model file is damaged, or a kernel "
                "is wrong on this machine; `python -m trinity selftest` tells which"
            )
        if self._pooling == "mean":
            vector = vector / (len(self.tokens) - self._skip)
        if self._head is not None:
            vector = self._head(vector)
        vector = vector[: self._dimensions]
        length = float(np.linalg.norm(vector))
        if self._normalize and length:
            vector = vector / length
        return vector.astype(np.float32)


def pooled(
    rows: abc.Sequence[list[int]], sinks: abc.Sequence[Sink],
    pooling: Pooling, normalize: bool, adapters: AdapterWeights, *,
    head: Head | None = None, encodes: bool = False, priority: int = 0,
    seconds: abc.Sequence[int | None] | None = None, skip: int = 0, dimensions: int | None = None,
) -> list[Pooled]:  # fmt: skip
    """A sequence for each list of tokens, whose vector goes to the sink in its place."""
    return [
        Pooled(
            tokens, sink, pooling, normalize, adapters=adapters, head=head, encodes=encodes,
            second=second, priority=priority, skip=skip, dimensions=dimensions,
        )
        for tokens, sink, second in zip(rows, sinks, seconds or [None] * len(rows), strict=True)
    ]  # fmt: skip


def stacked(found: abc.Sequence[NDArray[np.float32] | None], width: int) -> NDArray[np.float32]:
    """Vectors as one array (n, width). Raises: InputError where one was cancelled."""
    vectors = [vector for vector in found if vector is not None]
    if len(vectors) < len(found):
        raise InputError("the model was closed by another thread during the call")
    return np.array(vectors, np.float32).reshape(len(vectors), width)
