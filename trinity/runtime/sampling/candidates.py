"""The tokens that a chain of samplers still considers, and the samplers without a state.

Source of the formulas and of their order of operations: llama.cpp src/llama-sampler.cpp.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trinity.runtime.sampling.distribution import best, nucleus

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]


class Candidates:
    """Tokens with their logits, which samplers change and remove.

    Samplers may write into ``logits`` but not into ``ids``.
    """

    __slots__ = ("_whole", "descending", "ids", "logits")

    def __init__(self, ids: Ids, logits: Floats, *, whole: bool = False) -> None:
        self.ids = ids
        self.logits = logits
        self.descending = False  # whether the logits are sorted from the largest
        self._whole = whole  # whether they are all tokens, in order of id

    def keep(self, positions: Ids | slice, *, descending: bool) -> None:
        """Keep the candidates at these positions, in their order."""
        self.ids, self.logits = self.ids[positions], self.logits[positions]
        self.descending = descending
        self._whole = False

    def sort(self) -> None:
        """Sort from the largest logit; equal ones stay in order."""
        if not self.descending:
            self.keep(np.argsort(-self.logits, kind="stable"), descending=True)

    def weights(self) -> Doubles:
        """Numbers that are proportional to the probabilities; the largest is 1."""
        weights = self.logits.astype(np.float64)
        weights -= weights.max()
        np.exp(weights, out=weights)
        return weights

    def probabilities(self) -> Doubles:
        """The probabilities of the candidates."""
        weights = self.weights()
        weights /= weights.sum()
        return weights

    def positions(self, ids: Ids) -> tuple[Ids, Ids]:
        """The positions of those of the distinct ``ids`` that are candidates, and where in ``ids``
        they are.
        """
        if self._whole:
            return ids, np.arange(len(ids))
        _, positions, which = np.intersect1d(self.ids, ids, assume_unique=True, return_indices=True)
        return positions, which


def keep_top_n_sigma(candidates: Candidates, n: float) -> None:
    """Exclude tokens more than ``n`` standard deviations below the largest logit.

    Their logits become -inf; the number of candidates does not change.
    """
    logits = candidates.logits
    if len(logits) <= 1:
        return
    finite = logits if logits.min() > -np.inf else logits[logits != -np.inf]
    mean = finite.sum(dtype=np.float64) / len(finite)
    variance = np.square(finite - np.float32(mean)).sum(dtype=np.float64) / len(finite)
    logits[logits < float(finite.max()) - n * math.sqrt(variance)] = -np.inf


def keep_top_k(candidates: Candidates, k: int) -> None:
    """Keep the ``k`` most probable tokens."""
    if candidates.descending:
        candidates.keep(slice(k), descending=True)
    else:
        candidates.keep(best(candidates.logits, k), descending=True)


def keep_typical(candidates: Candidates, mass: float) -> None:
    """Keep the tokens whose information is closest to the entropy, up to the probability ``mass``.

    Source: Meister et al., Locally Typical Sampling, 2022.
    """
    candidates.sort()
    probabilities = candidates.probabilities()
    with np.errstate(divide="ignore"):
        information = -np.log(probabilities)
    possible = probabilities > 0
    entropy = float((probabilities[possible] * information[possible]).sum())
    order = np.argsort(np.abs(information - entropy), kind="stable")
    count = int(np.searchsorted(np.cumsum(probabilities[order]), mass, side="right")) + 1
    candidates.keep(order[:count], descending=False)


def keep_top_p(candidates: Candidates, mass: float) -> None:
    """Keep the fewest tokens whose probabilities sum to ``mass`` or more."""
    candidates.sort()
    normalizer = math.log(candidates.weights().sum()) + float(candidates.logits[0])
    candidates.keep(slice(nucleus(candidates.logits, mass, normalizer)), descending=True)


def keep_min_p(candidates: Candidates, share: float) -> None:
    """Keep tokens with at least ``share`` times the best probability."""
    logits = candidates.logits
    least = float(logits.max()) + math.log(share)
    candidates.keep(np.flatnonzero(logits >= least), descending=candidates.descending)


def exclude_top_choices(candidates: Candidates, threshold: float) -> None:
    """XTC: remove all tokens of at least this probability but the least probable of them."""
    candidates.sort()
    above = int(np.count_nonzero(candidates.probabilities() >= threshold))
    if above > 1:
        candidates.keep(slice(above - 1, None), descending=True)


def apply_temperature(candidates: Candidates, temperature: float) -> None:
    """Divide the logits; with a temperature of 0 only the best token stays possible."""
    logits = candidates.logits
    highest = float(logits.max())
    with np.errstate(over="ignore", divide="ignore"):
        finite = temperature > 0 and math.isfinite(np.float32(highest) / np.float32(temperature))
        if finite:
            np.divide(logits, np.float32(temperature), out=logits)
            return
    position = int(logits.argmax())
    logits[:] = -np.inf
    logits[position] = highest


def apply_dynamic_temperature(
    candidates: Candidates, temperature: float, spread: float, exponent: float
) -> None:
    """Apply a temperature between ``temperature - spread`` and ``temperature + spread``.

    It grows with the entropy of the candidates, relative to the entropy of equal probabilities.
    """
    if len(candidates.logits) <= 1:
        return
    candidates.sort()
    probabilities = candidates.probabilities()
    possible = probabilities[probabilities > 0]
    entropy = max(0.0, float(-(possible * np.log(possible)).sum()))
    share = entropy / math.log(len(probabilities))
    least, most = max(0.0, temperature - spread), temperature + spread
    apply_temperature(candidates, least + (most - least) * share**exponent)
