"""Penalties for tokens that occurred: repetition, frequency and presence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.sampling.sampling_params import SamplingParams

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


class RecentTokens:
    """Counts of the last ``most`` tokens of one text; of all if ``most`` is negative.

    The cost of ``look`` is one pass over the vocabulary and the new tokens, however long the text
    is.
    """

    def __init__(self, most: int, vocab_size: int) -> None:
        self._most = most
        self._counts = np.zeros(vocab_size, np.int64)
        self._start = self._end = 0  # the part of the text that is counted

    def look(self, text: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The distinct tokens, by id, and the count of each.

        ``text`` must be the text of the previous call with further tokens.
        """
        end = len(text)
        start = 0 if self._most < 0 else max(0, end - self._most)
        if start > self._end:
            self._counts[:] = 0
            self._start = self._end = start
        np.add.at(self._counts, np.asarray(text[self._end : end], np.int64), 1)
        np.subtract.at(self._counts, np.asarray(text[self._start : start], np.int64), 1)
        self._start, self._end = start, end
        ids = np.flatnonzero(self._counts)
        return ids, self._counts[ids]
