"""Penalties for tokens that occurred: repetition, frequency and presence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.recent_tokens import RecentTokens
from trinity.runtime.sampling_params import SamplingParams

LONG = 2048  # length of a penalty range from which token counts are kept between calls


class Penalties:
    """The penalties of one text, which grows from call to call."""

    def __init__(self, params: SamplingParams, vocab_size: int) -> None:
        self._params = params
        self._vocab_size = vocab_size
        self._recent: RecentTokens | None = None  # for long ranges

    def counted(self, history: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The distinct tokens in the range, and the count of each."""
        most = self._params.penalty_last_n
        recent = min(len(history), most) if most > 0 else len(history)
        if recent <= LONG:
            last = np.asarray(history[len(history) - recent :], np.int64)
            return np.unique(last, return_counts=True)
        if self._recent is None:
            self._recent = RecentTokens(most, self._vocab_size)
        return self._recent.look(history)

    def penalized(
        self, logits: NDArray[np.float32], counts: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The logits of tokens that occurred ``counts`` times, after the penalties."""
        values, factor = logits.astype(np.float64), self._params.repetition_penalty
        values = np.where(values > 0, values / factor, values * factor)
        return values - counts * self._params.frequency_penalty - self._params.presence_penalty

    def forget(self) -> None:
        """Forget the text, because the next one is another one."""
        self._recent = None
