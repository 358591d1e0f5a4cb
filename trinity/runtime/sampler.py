"""From logits to the next token: penalties, truncation, temperature, log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.runtime.sampling_params import SamplingParams

__all__ = ["Sampler", "SamplingParams", "TokenLogprob", "best", "log_normalizer", "token_logprob"]

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

BLOCK = 64  # elements whose maximum stands for them in the search for the best k
SUM_BLOCK = 8192  # elements that are exponentiated at once, so that they stay in the cache
FIRST_GUESS = 256  # how many tokens a nucleus is first looked for in


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log of the model's own probability of a token, before any sampling option.

    ``top`` holds the most probable tokens and their log-probabilities, best first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Chooses tokens for one sequence; owns its random numbers and one buffer of vocabulary size.

    Raises: InputError where ``logit_bias`` names a token outside the vocabulary.
    """

    def __init__(self, params: SamplingParams, vocab_size: int) -> None:
        self.params = params
        self._rng = np.random.default_rng(params.seed)
        bias = params.logit_bias or {}
        if bias and max(bias) >= vocab_size:
            raise InputError(
                f"logit_bias names token {max(bias)}; the model has ids 0 to {vocab_size - 1}"
            )
        self._bias_ids = np.fromiter(bias.keys(), np.int64, len(bias))
        with np.errstate(over="ignore"):  # seen as an infinite logit, once it is added
            self._bias = np.fromiter(bias.values(), np.float64, len(bias)).astype(np.float32)
        self._adjusts = bool(bias) or params.has_penalties
        self._scratch = np.empty(vocab_size if self._adjusts else 0, np.float32)

    def sample(self, logits: Floats, history: Sequence[int]) -> int:
        """The next token after ``history``.

        Shapes: logits (vocab,), left unchanged.
        Raises: TrinityError where the logits are not finite; InputError where ``logit_bias``
        forbids every token.
        """
        check_finite(logits)
        if self._adjusts:
            logits = self._adjusted(logits, history)
        params = self.params
        if params.temperature == 0:
            return int(logits.argmax())
        ids, values = self._candidates(logits)
        with np.errstate(over="ignore"):  # a tiny temperature: all but the best become -inf
            weights = np.exp((values.astype(np.float64) - float(values.max())) / params.temperature)
        cumulative = np.cumsum(weights)
        drawn = np.searchsorted(cumulative, self._rng.random() * cumulative[-1], side="right")
        return int(ids[min(int(drawn), len(ids) - 1)])

    def _adjusted(self, logits: Floats, history: Sequence[int]) -> Floats:
        """Logits after bias and penalties, in the scratch buffer."""
        params = self.params
        out = self._scratch
        np.copyto(out, logits)
        with np.errstate(over="ignore"):
            out[self._bias_ids] += self._bias
            if params.has_penalties and len(history):
                recent = history if params.penalty_last_n < 0 else history[-params.penalty_last_n :]
                ids, counts = np.unique(np.asarray(recent, np.int64), return_counts=True)
                values = out[ids].astype(np.float64)
                factor = params.repetition_penalty
                values = np.where(values > 0, values / factor, values * factor)
                out[ids] = values - counts * params.frequency_penalty - params.presence_penalty
        highest = float(out.max())
        if highest == -math.inf:
            raise InputError("logit_bias forbids every token; leave at least one")
        if not math.isfinite(highest):
            raise InputError("logit_bias and penalties push a logit beyond float32; lower them")
        return out

    def _candidates(self, logits: Floats) -> tuple[Ids, Floats]:
        """The tokens that top_k, top_p and min_p leave, with their logits."""
        params = self.params
        size = len(logits)
        floor = -math.inf
        if params.min_p > 0:
            floor = float(logits.max()) + math.log(params.min_p)
        if 0 < params.top_k < size:
            ids = best(logits, params.top_k)
            values = logits[ids]
            keep = nucleus(values, params.top_p, log_normalizer(values))
        elif params.top_p < 1:
            normalizer = log_normalizer(logits)
            guess = FIRST_GUESS
            while True:
                ids = best(logits, guess)
                values = logits[ids]
                keep = nucleus(values, params.top_p, normalizer)
                if keep < len(ids) or guess >= size or float(values[-1]) < floor:
                    break
                guess *= 4
        else:
            ids = np.flatnonzero(logits >= floor)
            return ids, logits[ids]
        keep = min(keep, int(np.count_nonzero(values >= floor)))
        return ids[:keep], values[:keep]


def check_finite(logits: Floats) -> None:
    """Raise TrinityError where a logit is NaN or +inf, or none is finite."""
    highest = float(logits.max())  # NaN wins a maximum, so one pass finds every case
    if not math.isfinite(highest):
        raise TrinityError(
            f"the model's output is not finite (its largest logit is {highest}), so no token can "
            "be chosen: the model file is damaged, or a kernel is wrong on this machine; "
            "`python -m trinity selftest` tells which"
        )


def best(logits: Floats, k: int) -> Ids:
    """Ids of the ``k`` largest logits, largest first; equal ones by id.

    The k-th largest of the maxima of blocks bounds the k-th largest logit from below, so that one
    quick pass leaves few candidates for the exact selection.
    """
    size = len(logits)
    k = min(k, size)
    if k <= 0:
        return np.empty(0, np.int64)
    blocks = size // BLOCK
    if k < blocks:
        maxima = logits[: blocks * BLOCK].reshape(blocks, BLOCK).max(axis=1)
        bound = np.partition(maxima, blocks - k)[blocks - k]
        candidates = np.flatnonzero(logits >= bound)
    else:
        candidates = np.arange(size)
    values = logits[candidates]
    if len(candidates) > k:
        count = len(candidates)
        edge = values[np.argpartition(values, count - k)[count - k]]
        above = np.flatnonzero(values > edge)
        equal = np.flatnonzero(values == edge)[: k - len(above)]
        chosen = np.sort(np.concatenate((above, equal)))
        candidates, values = candidates[chosen], values[chosen]
    return candidates[np.argsort(-values, kind="stable")]


def nucleus(values: Floats, top_p: float, normalizer: float) -> int:
    """How many of the logits, sorted from the largest, make up a probability of ``top_p``."""
    if top_p >= 1:
        return len(values)
    mass = np.cumsum(np.exp(values.astype(np.float64) - normalizer))
    return min(int(np.searchsorted(mass, top_p, side="left")) + 1, len(values))


def log_normalizer(logits: Floats) -> float:
    """log(sum(exp(logits))): what is subtracted from a logit to give its log-probability."""
    highest = float(logits.max())
    starts = [*range(0, len(logits), SUM_BLOCK), len(logits)]
    total = math.fsum(
        float(np.exp(logits[start:stop] - np.float32(highest)).sum(dtype=np.float64))
        for start, stop in pairwise(starts)
    )
    return highest + math.log(total)


def token_logprob(logits: Floats, token_id: int, top: int = 0) -> TokenLogprob:
    """The log-probability of ``token_id`` under raw ``logits``, and the ``top`` best tokens'."""
    normalizer = log_normalizer(logits)
    return TokenLogprob(
        token_id,
        float(logits[token_id]) - normalizer,
        tuple((int(i), float(logits[i]) - normalizer) for i in best(logits, top)),
    )
