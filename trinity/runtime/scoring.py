"""Sequences that are given: their logits, how likely their tokens are, one vector for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from trinity.errors import TrinityError
from trinity.runtime.cancel import Cancel
from trinity.runtime.generation import FinishReason
from trinity.runtime.inbox import Sink
from trinity.runtime.page import AdapterWeights
from trinity.runtime.perplexity import negative_log_likelihoods
from trinity.runtime.sequence import Logits, Sequence, States

if TYPE_CHECKING:
    from trinity.runtime.kv_cache import KVCache

Pooling = Literal["mean", "cls", "last"]


class _Given(Sequence):
    """Its result is None where it was cancelled."""

    def finish(self, reason: FinishReason) -> None:
        """End without a result."""
        self.end(None)


class AllLogits(_Given):
    """Writes the logits after every one of ``tokens`` into ``out`` (n_tokens, vocab), its result.

    Numerics: a float32 cache, in which everything is evaluated from the beginning.
    """

    def __init__(
        self, tokens: list[int], out: Logits, sink: Sink, adapters: AdapterWeights | None = None
    ) -> None:
        super().__init__(tokens, sink, kv_type="F32", adapters=adapters)
        self._out = out

    @property
    def first(self) -> int:
        """All logits are wanted."""
        return 0

    def advance(self, logits: Logits) -> None:
        """Copy them to their place."""
        assert self.cache is not None
        end = self.cache.length
        self._out[end - len(logits) : end] = logits
        if end == len(self.tokens):
            self.end(self._out)


class Likelihoods(_Given):
    """Negative log-likelihoods, in nats, of all tokens of ``window`` after its middle one.

    The cache has the engine's own element type, as in generation; the result is (n,) float64.
    It fails with a TrinityError where the model's output is not finite.
    """

    def __init__(self, window: NDArray[np.int32], sink: Sink, cancel: Cancel | None = None) -> None:
        # The last token predicts nothing that is known.
        super().__init__(window[:-1].tolist(), sink, cancel=cancel)
        self._window = window
        self._found: list[NDArray[np.float64]] = []

    def start(self, cache: KVCache) -> None:
        """Begin, perhaps once more."""
        super().start(cache)
        self._found.clear()

    @property
    def first(self) -> int:
        """What follows the middle is predicted."""
        return len(self._window) // 2

    def advance(self, logits: Logits) -> None:
        """Look up what they say of the tokens that follow."""
        assert self.cache is not None
        end = self.cache.length
        targets = self._window[end - len(logits) + 1 : end + 1]
        self._found.append(negative_log_likelihoods(logits, targets))
        if end == len(self.tokens):
            self.end(np.concatenate(self._found))


class Pooled(_Given):
    """One vector (hidden_size,) float32 of the hidden states behind the output norm.

    ``pooling``: "mean" of all tokens' states, "cls" the first one's, "last" the last one's.
    ``normalize`` divides by the Euclidean norm; a vector of zeros stays as it is.
    It fails with a TrinityError where the model's output is not finite.
    Source: llama.cpp, llm_graph_context::build_pooling and common_embd_normalize.
    """

    of_states = True

    def __init__(
        self, tokens: list[int], sink: Sink, pooling: Pooling, normalize: bool,
        cancel: Cancel | None = None, adapters: AdapterWeights | None = None,
    ) -> None:  # fmt: skip
        super().__init__(tokens, sink, cancel=cancel, adapters=adapters)
        self._pooling = pooling
        self._normalize = normalize
        self._vector: NDArray[np.float64] | None = None

    @property
    def first(self) -> int:
        """All states are wanted."""
        return 0

    def start(self, cache: KVCache) -> None:
        """Begin, perhaps once more."""
        super().start(cache)
        self._vector = None

    def advance(self, states: States) -> None:
        """Add them up, or keep the one that is wanted."""
        assert self.cache is not None
        if self._pooling == "mean":
            added = states.sum(axis=0, dtype=np.float64)
            self._vector = added if self._vector is None else self._vector + added
        elif self._pooling == "last" or self._vector is None:
            self._vector = states[-1 if self._pooling == "last" else 0].astype(np.float64)
        if self.cache.length == len(self.tokens):
            self.end(self._result(self._vector))

    def _result(self, vector: NDArray[np.float64]) -> NDArray[np.float32]:
        if not np.isfinite(vector).all():
            raise TrinityError(
                "the model's hidden states are not finite: the model file is damaged, or a kernel "
                "is wrong on this machine; `python -m trinity selftest` tells which"
            )
        if self._pooling == "mean":
            vector = vector / len(self.tokens)
        length = float(np.linalg.norm(vector))
        if self._normalize and length:
            vector = vector / length
        return vector.astype(np.float32)
