"""Sequences that score given tokens: logits, likelihoods, log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.generation import FinishReason
from trinity.runtime.likelihoods.perplexity import negative_log_likelihoods
from trinity.runtime.options import Cancel
from trinity.runtime.pages.page import AdapterWeights
from trinity.runtime.sampling.logprobs import TokenLogprob, token_logprobs
from trinity.runtime.scheduling.inbox import Sink
from trinity.runtime.scheduling.sequence import Logits, Sequence

if TYPE_CHECKING:
    from trinity.runtime.pages.kv_cache import KVCache


class _Given(Sequence):
    """A sequence whose result is None if it is cancelled."""

    def finish(self, reason: FinishReason) -> None:
        """End with the result None."""
        self.end(None)


class AllLogits(_Given):
    """Writes the logits after each of ``tokens`` into ``out`` (n_tokens, vocab), its result.

    Numerics: the KV cache is float32, and nothing is reused.
    """

    def __init__(
        self, tokens: list[int], out: Logits, sink: Sink, adapters: AdapterWeights | None = None
    ) -> None:
        super().__init__(tokens, sink, kv_type="F32", adapters=adapters)
        self._out = out

    @property
    def first(self) -> int:
        """All logits are needed."""
        return 0

    def advance(self, logits: Logits) -> None:
        """Copy the logits to their rows of the result."""
        assert self.cache is not None
        end = self.cache.length
        self._out[end - len(logits) : end] = logits
        if end == len(self.tokens):
            self.end(self._out)


class Likelihoods(_Given):
    """Negative log-likelihoods, in nats, of all tokens of ``window`` after its middle one.

    The KV cache has the engine's element type, as in generation; the result is (n,) float64. It
    fails with a TrinityError if the model's output is not finite.
    """

    def __init__(self, window: NDArray[np.int32], sink: Sink, cancel: Cancel | None = None) -> None:
        # The token after the last one is unknown.
        super().__init__(window[:-1].tolist(), sink, cancel=cancel)
        self._window = window
        self._found: list[NDArray[np.float64]] = []

    def start(self, cache: KVCache) -> None:
        """Begin, or start over."""
        super().start(cache)
        self._found.clear()

    @property
    def first(self) -> int:
        """Tokens after the middle one are scored."""
        return len(self._window) // 2

    def advance(self, logits: Logits) -> None:
        """Look up the log-likelihoods of the tokens that follow."""
        assert self.cache is not None
        end = self.cache.length
        targets = self._window[end - len(logits) + 1 : end + 1]
        self._found.append(negative_log_likelihoods(logits, targets))
        if end == len(self.tokens):
            self.end(np.concatenate(self._found))


class PromptLogprobs(_Given):
    """Log-probabilities of all ``tokens`` but the first, each with the ``top`` best tokens.

    The result is a list of TokenLogprob; ``text`` returns a token's text. The KV cache has the
    engine's element type, as in generation.
    """

    def __init__(
        self, tokens: list[int], top: int, text: Callable[[int], str], sink: Sink,
        adapters: AdapterWeights | None = None,
    ) -> None:  # fmt: skip
        super().__init__(tokens[:-1], sink, adapters=adapters)
        self._targets = tokens[1:]
        self._top = top
        self._text = cache(text)
        self._found: list[TokenLogprob] = []

    @property
    def first(self) -> int:
        """The logits after every token are needed."""
        return 0

    def start(self, cache: KVCache) -> None:
        """Begin, or start over."""
        super().start(cache)
        self._found.clear()

    def advance(self, logits: Logits) -> None:
        """Look up the log-probabilities of the tokens that follow."""
        targets = self._targets[len(self._found) : len(self._found) + len(logits)]
        self._found += token_logprobs(logits, targets, self._top, self._text)
        if len(self._found) == len(self._targets):
            self.end(self._found)
