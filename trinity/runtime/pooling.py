"""The sequence that pools the hidden states of a text into one vector."""

from __future__ import annotations

from collections import abc
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.runtime.generation import FinishReason
from trinity.runtime.pages.page import AdapterWeights
from trinity.runtime.scheduling.inbox import Sink
from trinity.runtime.scheduling.sequence import Sequence, States
from trinity.runtime.text_heads import Head

if TYPE_CHECKING:
    from trinity.runtime.pages.kv_cache import KVCache

Pooling = Literal["mean", "cls", "last"]


class PoolingOptions(NamedTuple):
    """How the hidden states of a text become its result."""

    pooling: Pooling
    """The mean of all tokens' states, the first token's ("cls") or the last one's."""
    normalize: bool
    """Divide the vector by its Euclidean length; a vector of zeros stays as it is."""
    adapters: AdapterWeights | None = None
    """The scale of each LoRA adapter."""
    head: Head | None = None
    """Layers that follow the pooling."""
    encodes: bool = False
    """The model is an encoder: the whole text is computed in one step."""
    priority: int = 0
    """Lower values run first."""
    dimensions: int | None = None
    """The number of leading values of the vector that are kept; None keeps all."""


class Pooled(Sequence):
    """Gives one float32 vector for the hidden states after the output norm.

    ``second``: the index of the token where the second text of a pair begins. ``skip``: the number
    of tokens at the beginning that are not pooled; the last token always is.
    Shapes: the result is (hidden_size,), or what ``options.head`` makes of that.
    The sequence fails with a TrinityError if the model's output is not finite.
    Source: llama.cpp, llm_graph_context::build_pooling and common_embd_normalize.
    """

    of_states = True

    def __init__(
        self, tokens: list[int], sink: Sink, options: PoolingOptions, *,
        second: int | None = None, skip: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(tokens, sink, priority=options.priority, adapters=options.adapters)
        self._skip = min(skip, len(tokens) - 1)
        self.whole, self.second = options.encodes, second
        self._options = options
        self._vector: NDArray[np.float64] | None = None

    @property
    def first(self) -> int:
        """The states of all tokens are needed."""
        return 0

    def start(self, cache: KVCache) -> None:
        """Begin, or start over."""
        super().start(cache)
        self._vector = None

    def finish(self, reason: FinishReason) -> None:
        """End with the result None."""
        self.end(None)

    def advance(self, states: States) -> None:
        """Add the states of a step, or keep the one that the pooling needs."""
        assert self.cache is not None
        states = states[max(0, self._skip - (self.cache.length - len(states))) :]
        if len(states):
            self._add(states)
        if self.cache.length == len(self.tokens):
            assert self._vector is not None
            self.end(self._result(self._vector))

    def _add(self, states: States) -> None:
        pooling = self._options.pooling
        if pooling == "mean":
            with np.errstate(invalid="ignore"):  # inf - inf: ``_result`` refuses it
                added = states.sum(axis=0, dtype=np.float64)
                self._vector = added if self._vector is None else self._vector + added
        elif pooling == "last" or self._vector is None:
            self._vector = states[-1 if pooling == "last" else 0].astype(np.float64)

    @np.errstate(all="ignore")  # values that are not finite are refused
    def _result(self, vector: NDArray[np.float64]) -> NDArray[np.float32]:
        options = self._options
        if options.pooling == "mean":
            vector = vector / (len(self.tokens) - self._skip)
        if options.head is not None and np.isfinite(vector).all():
            vector = options.head(vector)
        is_finite = np.isfinite(vector).all()
        vector = vector[: options.dimensions]
        length = float(np.linalg.norm(vector))
        if options.normalize and length:
            vector = vector / length
        found = vector.astype(np.float32)
        if not is_finite or not np.isfinite(found).all():
            raise TrinityError(
                "the model's hidden states are not finite: the model file is damaged, or a kernel "
                "is wrong on this machine; `trinity selftest` tells which"
            )
        return found


def pooled(
    rows: abc.Sequence[list[int]], sinks: abc.Sequence[Sink], options: PoolingOptions, *,
    seconds: abc.Sequence[int | None] | None = None, skip: int = 0,
) -> list[Pooled]:  # fmt: skip
    """A sequence for each list of token ids; its vector goes to the sink of the same index."""
    return [
        Pooled(tokens, sink, options, second=second, skip=skip)
        for tokens, sink, second in zip(rows, sinks, seconds or [None] * len(rows), strict=True)
    ]


def stacked(results: abc.Sequence[NDArray[np.float32] | None], width: int) -> NDArray[np.float32]:
    """The vectors as one array, (n, width). Raises: InputError if one is None (cancelled)."""
    vectors = [vector for vector in results if vector is not None]
    if len(vectors) < len(results):
        raise InputError("the model was closed by another thread during the call")
    return np.array(vectors, np.float32).reshape(len(vectors), width)
