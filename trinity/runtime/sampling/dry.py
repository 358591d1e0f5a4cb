"""DRY ("don't repeat yourself"): a penalty for tokens that would extend a repetition.

Source: llama.cpp src/llama-sampler.cpp, after koboldcpp's pull request 982.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.sampling.candidates import Candidates
from trinity.runtime.sampling.dry_breakers import Breakers
from trinity.runtime.sampling.sampling_params import SamplingParams

Ids = NDArray[np.int64]

LOG_FLOAT_MAX = 88.7228391  # the logarithm of the largest float32
LEAST_GROWING_BASE = 1.000001
# Repetitions are followed this far back, which a base of 1.2 and more does not exceed.
MOST_REPEATED = 512


class Dry:
    """The DRY penalty of one text, which grows from call to call.

    ``breakers``: the sequences that no repetition extends over.
    """

    def __init__(self, params: SamplingParams, breakers: Breakers) -> None:
        self._multiplier, self._base = params.dry_multiplier, params.dry_base
        self._allowed, self._last_n = params.dry_allowed_length, params.dry_penalty_last_n
        self._breakers = breakers
        self._text = np.empty(256, np.int64)
        self._length = 0

    def apply(self, candidates: Candidates, history: Sequence[int]) -> None:
        """Subtract the penalties from the logits."""
        self._follow(history)
        length = self._length if self._last_n < 0 else min(self._length, self._last_n)
        if length <= self._allowed:
            return
        backwards = self._text[self._length - length : self._length][::-1]
        reach = self._breakers.reach(backwards)
        if reach < self._allowed:
            return
        ids, repeated = self._repeated(backwards, reach)
        extends = [i for i, token in enumerate(ids.tolist()) if not self._breakers.alone(token)]
        positions, which = candidates.positions(ids[extends])
        exponents = np.minimum(repeated[extends][which] - self._allowed, self._most_exponent)
        with np.errstate(over="ignore"):
            penalties = self._multiplier * np.power(self._base, exponents.astype(np.float64))
            candidates.logits[positions] -= penalties.astype(np.float32)
        candidates.descending = False

    def forget(self) -> None:
        """Forget the text, because the next one is another one."""
        self._length = 0

    @property
    def _most_exponent(self) -> int:
        """The largest exponent for which the power of the base is a finite float32."""
        if self._base <= LEAST_GROWING_BASE:
            return 0
        return int(min(LOG_FLOAT_MAX / math.log(self._base), MOST_REPEATED))

    def _follow(self, history: Sequence[int]) -> None:
        """Append what ``history`` has in addition to the known text."""
        new = len(history)
        if new > len(self._text):
            grown = np.empty(2 * new, np.int64)
            grown[: self._length] = self._text[: self._length]
            self._text = grown
        self._text[self._length : new] = history[self._length :]
        self._length = new

    def _repeated(self, backwards: Ids, reach: int) -> tuple[Ids, Ids]:
        """The tokens that would extend a repetition, and the length that would be repeated.

        ``backwards``: the text from its newest token; ``reach``: the longest repetition.
        """
        most = min(reach, self._allowed + self._most_exponent)
        # Starts of repetitions: the text from each of them begins as the text from 0.
        starts = np.arange(1, len(backwards))
        lengths = np.zeros(len(backwards), np.int64)
        for length in range(most):
            starts = starts[: int(np.searchsorted(starts, len(backwards) - length))]
            starts = starts[backwards[starts + length] == backwards[length]]
            if not len(starts):
                break
            lengths[starts] = length + 1
        (found,) = (lengths[1:] >= self._allowed).nonzero()
        ids, which = np.unique(backwards[found], return_inverse=True)
        longest = np.zeros(len(ids), np.int64)
        np.maximum.at(longest, which, lengths[1:][found])
        return ids, longest
