"""How a chain of samplers ends: one of the candidates is chosen at random.

Source of the formulas: llama.cpp src/llama-sampler.cpp.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.sampling.candidates import Candidates
from trinity.runtime.sampling.distribution import best, log_normalizer
from trinity.runtime.sampling.draws import Draws

Doubles = NDArray[np.float64]

MIROSTAT_TOKENS = 100  # the most probable tokens from which mirostat 1 estimates the exponent
# The transformation of adaptive-p: the width of its peak, its height, and its slope.
ADAPTIVE_WIDTH, ADAPTIVE_PEAK, ADAPTIVE_SLOPE = 0.3, 5.0, 10.0


class Selection(Protocol):
    """Chooses one of the candidates."""

    def choose(self, candidates: Candidates, draws: Draws) -> tuple[int, Doubles]:
        """The position of the chosen candidate, and the weights it was drawn with.

        The candidates may be fewer afterwards.
        """
        ...


class PlainSelection:
    """Chooses by the probabilities."""

    def choose(self, candidates: Candidates, draws: Draws) -> tuple[int, Doubles]:
        """See ``Selection``."""
        weights = candidates.weights()
        return draws.position(weights), weights


class Mirostat1:
    """Chooses among the k best tokens, with k from the text's surprise so far.

    Source: Basu et al., Mirostat, 2021. ``tau``: the surprise to approach, in bits; ``eta``: the
    learning rate.
    """

    def __init__(self, vocab_size: int, tau: float, eta: float) -> None:
        self._vocab_size = vocab_size
        self._tau, self._eta, self._most = tau, eta, 2 * tau

    def choose(self, candidates: Candidates, draws: Draws) -> tuple[int, Doubles]:
        """See ``Selection``."""
        candidates.keep(best(candidates.logits, self._count(candidates)), descending=True)
        position, weights = _choose(candidates, draws)
        self._most -= self._eta * (_surprise(position, weights) - self._tau)
        return position, weights

    def _count(self, candidates: Candidates) -> int:
        first = candidates.logits[best(candidates.logits, MIROSTAT_TOKENS)]
        # The probabilities themselves, since those that float32 cannot hold decide, too.
        shares = np.exp(first - first[0])
        ranks = np.arange(1, len(first), dtype=np.float64)
        steps = np.log((ranks + 1) / ranks)
        with np.errstate(all="ignore"):
            ratios = np.log(shares[:-1] / shares[1:])
            slope = np.float64((steps * ratios).sum()) / (steps * steps).sum()
            excess = slope - 1
            count = np.power(
                excess * np.exp2(self._most) / (1 - np.float64(self._vocab_size) ** -excess),
                1 / slope,
            )
        size = len(candidates.logits)
        return int(min(max(count, 1), size)) if count < math.inf else 1


class Mirostat2:
    """Chooses among the tokens whose surprise is at most a limit that follows the text.

    ``tau`` and ``eta``: as for ``Mirostat1``.
    """

    def __init__(self, tau: float, eta: float) -> None:
        self._tau, self._eta, self._most = tau, eta, 2 * tau

    def choose(self, candidates: Candidates, draws: Draws) -> tuple[int, Doubles]:
        """See ``Selection``."""
        least = log_normalizer(candidates.logits) - self._most * math.log(2)
        kept = np.flatnonzero(candidates.logits >= least)
        if not len(kept):
            kept = np.array([candidates.logits.argmax()])
        candidates.keep(kept, descending=candidates.descending)
        candidates.sort()
        position, weights = _choose(candidates, draws)
        self._most -= self._eta * (_surprise(position, weights) - self._tau)
        return position, weights


class AdaptiveP:
    """Prefers tokens whose probability is near a target that follows the text.

    ``target``: the mean probability to approach, negative: off; ``decay``: how much an earlier
    token counts less than the one after it. Source: llama.cpp's pull request 17927.
    """

    def __init__(self, target: float, decay: float) -> None:
        self._target, self._decay = target, decay
        # Decayed sums of the chosen tokens' probabilities, and of their weights.
        self._sum, self._weight = target / (1 - decay), 1 / (1 - decay)

    def choose(self, candidates: Candidates, draws: Draws) -> tuple[int, Doubles]:
        """See ``Selection``."""
        if self._target < 0:
            return _choose(candidates, draws)
        shares = candidates.probabilities()
        target = min(max(2 * self._target - self._sum / self._weight, 0.0), 1.0)
        distances = np.abs(shares - target) / ADAPTIVE_WIDTH
        logits = ADAPTIVE_PEAK - ADAPTIVE_SLOPE * distances * distances / (1 + distances)
        logits[candidates.logits == -np.inf] = -np.inf
        candidates.logits, candidates.descending = logits.astype(np.float32), False
        position, weights = _choose(candidates, draws)
        self._sum = float(shares[position]) + self._decay * self._sum
        self._weight = 1 + self._decay * self._weight
        return position, weights


def _choose(candidates: Candidates, draws: Draws) -> tuple[int, Doubles]:
    """As ``PlainSelection``, but a single candidate takes no random number, as with libstdc++'s
    ``discrete_distribution``.
    """
    weights = candidates.weights()
    return (draws.position(weights) if len(weights) > 1 else 0), weights


def _surprise(position: int, weights: Doubles) -> float:
    """The information of a chosen candidate, in bits."""
    return -math.log2(float(weights[position] / weights.sum()))
