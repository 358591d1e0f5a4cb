"""Samples the next token from logits: penalties, truncation, temperature, log-probabilities."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.runtime.interface import Best
from trinity.runtime.recent_tokens import RecentTokens
from trinity.runtime.sampling_params import SamplingParams
from trinity_kernels.isa import interpreted

__all__ = ["Sampler", "SamplingParams", "TokenLogprob", "best", "log_normalizer", "token_logprob"]

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

COMPILED_FROM = 8192  # number of logits from which a compiled selection is faster than sorting
SUM_BLOCK = 8192  # elements per call of exp, so that they stay in the CPU cache
FIRST_GUESS = 256  # first number of tokens to search a nucleus in
GROWTH = 8  # factor of that number if it was too small
LAST_GUESS = 16384  # number of attempts after which all logits are sorted
LARGEST_DRAW = 1 - 2.0**-53  # the largest float below 1
_NO_IDS = np.empty(0, np.int64)
LONG = 2048  # length of a penalty range from which token counts are kept between calls


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of a token."""

    token_id: int
    logprob: float
    """The natural logarithm of the model's own probability, before sampling options.

    With ``processed_logprobs``, after them.
    """
    text: str = ""
    """The token's text, with U+FFFD for bytes that are not valid text alone."""
    top: tuple[TokenLogprob, ...] = ()
    """The most probable tokens, best first; their own ``top`` is empty."""


class Draws:
    """Random numbers in [0, 1), the same as llama.cpp's for the same seed.

    They come from the 32-bit Mersenne Twister (Matsumoto and Nishimura, 1998) with its authors'
    seeding. Each number takes two words, the lower one first, as libstdc++'s
    ``uniform_real_distribution<double>`` does. NumPy spreads seeds of more than 32 bits, which
    llama.cpp does not have; None takes a seed from the operating system.
    """

    def __init__(self, seed: int | None) -> None:
        self._bits = random.Random()  # the same generator, but for the seeding
        if seed is None:
            return
        if seed < 2**32:
            words, position = [seed], 624
            for i in range(1, 624):
                words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) % 2**32)
        else:
            state: Any = np.random.MT19937(seed).state["state"]
            words, position = state["key"].tolist(), state["pos"]
        self._bits.setstate((3, (*words, position), None))

    def next(self) -> float:
        """The next number."""
        return min(self._bits.getrandbits(64) / 2**64, LARGEST_DRAW)


class Sampler:
    """Samples tokens for one sequence; owns its random numbers and one buffer of vocabulary size.

    ``keeps``: keep the distribution of the newest token, for ``logprob``.
    Raises: InputError if ``logit_bias`` names a token outside the vocabulary.
    """

    def __init__(self, params: SamplingParams, vocab_size: int, *, keeps: bool = False) -> None:
        self.params = params
        self._keeps = keeps
        self._draws = Draws(params.seed)
        bias = params.logit_bias or {}
        if bias and max(bias) >= vocab_size:
            raise InputError(
                f"logit_bias names token {max(bias)}; the model has ids 0 to {vocab_size - 1}",
                "logit_bias",
            )
        self._bias_ids = np.fromiter(bias.keys(), np.int64, len(bias))
        with np.errstate(over="ignore"):  # found as an infinite logit after it is added
            self._bias = np.fromiter(bias.values(), np.float64, len(bias)).astype(np.float32)
        self._adjusts = bool(bias) or params.has_penalties
        self._scratch = np.empty(vocab_size if self._adjusts else 0, np.float32)
        self._recent: RecentTokens | None = None  # for long penalty ranges
        # Ids and weights from which the newest token was drawn; None if it was certain.
        self._drawn: tuple[Ids, NDArray[np.float64]] | None = None

    def sample(
        self, logits: Floats, history: Sequence[int], allowed: NDArray[np.bool_] | None = None
    ) -> int:
        """The next token after ``history``, one that is ``allowed``.

        Shapes: logits (vocab,), left unchanged; allowed (vocab,).
        Raises: TrinityError if the logits are not finite; InputError if ``logit_bias`` forbids
        every token.
        """
        check_finite(float(logits.max()))  # NaN is the maximum, so one pass finds every case
        if self._adjusts:
            logits = self._adjusted(logits, history)
        self._drawn = None
        if allowed is None:
            return self._chosen(logits)
        # Only the best are compared, so that rounding cannot choose another token.
        (allowed_ids,) = allowed.nonzero()
        logits = logits[allowed_ids]
        if len(logits) == 0 or float(logits.max()) == -math.inf:
            raise InputError("logit_bias forbids every token that the grammar allows", "logit_bias")
        chosen = int(allowed_ids[self._chosen(logits)])
        if self._drawn is not None:
            self._drawn = allowed_ids[self._drawn[0]], self._drawn[1]
        return chosen

    def needed(
        self, history: Sequence[int], proposals: Sequence[int], barred: Sequence[int] | Ids
    ) -> Best | None:
        """Which logits ``sample`` needs after ``history``, or after some of ``proposals``, too.

        ``barred``: tokens that may not be allowed. None: all of them.
        """
        params = self.params
        count = 1 if params.temperature == 0 else params.top_k
        if not count:
            return None
        also = [*barred]
        if self._adjusts:
            also += self._bias_ids.tolist()
            if params.has_penalties and params.penalty_last_n:
                most = params.penalty_last_n
                if not 0 < most <= LONG:
                    return None
                also += [*history[-most:], *proposals]
        return Best(count, np.unique(np.array(also, np.int64)) if also else _NO_IDS)

    def skip(self) -> None:
        """Consume the random number of a token that was chosen elsewhere."""
        if self.params.temperature != 0:
            self._draws.next()

    def forget(self) -> None:
        """Forget the history, because the next one is another text."""
        self._recent = None

    def logprob(self, token_id: int, top: int, text: Callable[[int], str]) -> TokenLogprob:
        """The log-probability with which ``token_id`` was just drawn, and those of the ``top``
        best.

        Tokens that the options excluded have none. A token that was not drawn was certain.
        """
        drawn, self._drawn = self._drawn, None
        if drawn is None:
            certain = TokenLogprob(token_id, 0.0, text(token_id))
            return replace(certain, top=(certain,)) if top else certain
        ids, weights = drawn
        shares = weights / weights.sum()
        most = _highest(shares, top)
        best_ids, best_shares = ids[most].tolist(), shares[most].tolist()
        best = tuple(
            TokenLogprob(token, math.log(share), text(token))
            for token, share in zip(best_ids, best_shares, strict=True) if share > 0
        )  # fmt: skip
        share = float(shares[ids == token_id][0])
        return TokenLogprob(token_id, math.log(share), text(token_id), best)

    def _chosen(self, logits: Floats) -> int:
        params = self.params
        if params.temperature == 0:
            return int(logits.argmax())
        ids, values = self._candidates(logits)
        with np.errstate(over="ignore"):  # with a tiny temperature, all but the best become -inf
            weights = np.exp((values.astype(np.float64) - float(values.max())) / params.temperature)
        if self._keeps:
            self._drawn = ids, weights
        cumulative = np.cumsum(weights)
        drawn = np.searchsorted(cumulative, self._draws.next() * cumulative[-1], side="right")
        return int(ids[min(int(drawn), len(ids) - 1)])

    def _adjusted(self, logits: Floats, history: Sequence[int]) -> Floats:
        """The logits after bias and penalties, in the scratch buffer."""
        params = self.params
        out = self._scratch
        np.copyto(out, logits)
        with np.errstate(over="ignore"):
            out[self._bias_ids] += self._bias
            if params.has_penalties and len(history):
                most = params.penalty_last_n
                recent = min(len(history), most) if most > 0 else len(history)
                ids, counts = self._counted(recent, history)
                values = out[ids].astype(np.float64)
                factor = params.repetition_penalty
                values = np.where(values > 0, values / factor, values * factor)
                out[ids] = values - counts * params.frequency_penalty - params.presence_penalty
        highest = float(out.max())
        if highest == -math.inf:
            raise InputError("logit_bias forbids every token; leave at least one", "logit_bias")
        if not math.isfinite(highest):
            raise InputError(
                "logit_bias and penalties push a logit beyond float32; lower them", "logit_bias"
            )
        return out

    def _counted(self, recent: int, history: Sequence[int]) -> tuple[Ids, Ids]:
        """The distinct tokens among the last ``recent`` ones, and the count of each."""
        if recent <= LONG:
            last = np.asarray(history[len(history) - recent :], np.int64)
            return np.unique(last, return_counts=True)
        if self._recent is None:
            self._recent = RecentTokens(self.params.penalty_last_n, len(self._scratch))
        return self._recent.look(history)

    def _candidates(self, logits: Floats) -> tuple[Ids, Floats]:
        """The tokens that top_k, top_p and min_p leave, with their logits."""
        params = self.params
        size = len(logits)
        below = math.log(params.min_p) if params.min_p > 0 else -math.inf
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
                if keep < len(ids) or guess >= size or values[-1] < float(values[0]) + below:
                    break
                guess = guess * GROWTH if guess < LAST_GUESS else size
        else:
            ids = np.flatnonzero(logits >= float(logits.max()) + below)
            return ids, logits[ids]
        keep = min(keep, int(np.count_nonzero(values >= float(values[0]) + below)))
        return ids[:keep], values[:keep]


def check_finite(highest: float) -> None:
    """Raise TrinityError if the largest logit shows a NaN or +inf, or that none is finite."""
    if not math.isfinite(highest):
        raise TrinityError(
            f"the model's output is not finite (its largest logit is {highest}), so no token can "
            "be chosen: the model file is damaged, or a kernel is wrong on this machine; "
            "`python -m trinity selftest` tells which"
        )


def best(logits: Floats, k: int) -> Ids:
    """The ids of the ``k`` largest logits, largest first; equal ones in order of id."""
    k = min(k, len(logits))
    if k <= 0:
        return np.empty(0, np.int64)
    if len(logits) < COMPILED_FROM or interpreted() or not logits.flags.c_contiguous:
        return np.argsort(-logits, kind="stable")[:k]
    # Imported here because it loads the compiler.
    from trinity_kernels.ops.select import largest

    return largest(logits, k)


def _highest(shares: NDArray[np.float64], count: int) -> Ids:
    """The indices of the ``count`` largest shares, largest first; equal ones in order of index."""
    if not count:
        return np.empty(0, np.int64)
    indices = np.arange(len(shares))
    if count < len(shares):
        least = np.partition(shares, len(shares) - count)[len(shares) - count]
        indices = np.flatnonzero(shares >= least)
    return indices[np.argsort(-shares[indices], kind="stable")][:count]


def nucleus(values: Floats, top_p: float, normalizer: float) -> int:
    """Return how many of the logits, sorted from the largest, reach the probability ``top_p``."""
    if top_p >= 1:
        return len(values)
    mass = np.cumsum(np.exp(values.astype(np.float64) - normalizer))
    return min(int(np.searchsorted(mass, top_p, side="left")) + 1, len(values))


def log_normalizer(logits: Floats) -> float:
    """log(sum(exp(logits))); a logit minus this is its log-probability."""
    highest = float(logits.max())
    starts = [*range(0, len(logits), SUM_BLOCK), len(logits)]
    total = math.fsum(
        float(np.exp(logits[start:stop] - np.float32(highest)).sum(dtype=np.float64))
        for start, stop in pairwise(starts)
    )
    return highest + math.log(total)


def token_logprob(
    logits: Floats, token_id: int, top: int = 0, text: Callable[[int], str] = lambda token: ""
) -> TokenLogprob:
    """The log-probability of ``token_id`` under raw ``logits``, and those of the ``top`` best.

    ``text`` returns a token's text.
    """
    normalizer = log_normalizer(logits)

    best_ids = best(logits, top)
    alternatives = tuple(
        TokenLogprob(token, value - normalizer, text(token))
        for token, value in zip(best_ids.tolist(), logits[best_ids].tolist(), strict=True)
    )
    return TokenLogprob(
        token_id, float(logits[token_id]) - normalizer, text(token_id), alternatives
    )
