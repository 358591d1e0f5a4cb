"""Counts the tokens at the end of a growing text, for penalties with a long range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


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
