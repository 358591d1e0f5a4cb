"""Samples the next token from logits: penalties, truncation, temperature, log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError, TrinityError
from trinity.runtime.interface import Best
from trinity.runtime.sampling.active_samplers import has_dry, plain_params
from trinity.runtime.sampling.candidates import Candidates
from trinity.runtime.sampling.distribution import best, highest, log_normalizer, nucleus
from trinity.runtime.sampling.draws import Draws
from trinity.runtime.sampling.logprobs import Alternatives, TokenLogprob
from trinity.runtime.sampling.penalties import LONG, Penalties
from trinity.runtime.sampling.sampling_params import SamplingParams

if TYPE_CHECKING:
    from trinity.runtime.sampling.dry_breakers import Breakers
    from trinity.runtime.sampling.sampler_chain import SamplerChain

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]

FIRST_GUESS = 256  # first number of tokens to search a nucleus in
GROWTH = 8  # factor of that number if it was too small
LAST_GUESS = 16384  # number of attempts after which all logits are sorted
_NO_IDS = np.empty(0, np.int64)


class Sampler:
    """Samples tokens for one sequence; owns its random numbers and buffers of vocabulary size.

    ``keeps``: keep the distribution of the newest token, for ``logprob``. ``breakers``: the
    sequence breakers of DRY, if it is on.
    Raises: InputError if ``logit_bias`` names a token outside the vocabulary.
    """

    def __init__(
        self,
        params: SamplingParams,
        vocab_size: int,
        *,
        keeps: bool = False,
        breakers: Breakers | None = None,
    ) -> None:
        plain = params if params.usual else plain_params(params)
        self.params = plain or params
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
        self._given, self._vocab_size = params, vocab_size
        self._chain: SamplerChain | None = None
        self._adjusts = bool(bias) or self.params.has_penalties
        if plain is None:
            from trinity.runtime.sampling.sampler_chain import (
                SamplerChain,  # most requests need none
            )

            self._chain = SamplerChain(params, vocab_size, self._penalties, breakers)
            self._ids = np.arange(vocab_size)
            self._adjusts = True
        # How many of the last tokens may have penalties; negative: all.
        self._ranges = [params.penalty_last_n] if self.params.has_penalties else []
        if not params.usual and has_dry(params):
            self._ranges.append(params.dry_penalty_last_n)
        self._scratch = np.empty(vocab_size if self._adjusts else 0, np.float32)
        # Ids and weights from which the newest token was drawn; None if it was certain.
        self._drawn: tuple[Ids, NDArray[np.float64]] | None = None

    @cached_property
    def _penalties(self) -> Penalties:
        return Penalties(self._given, self._vocab_size)

    def sample(
        self, logits: Floats, history: Sequence[int], allowed: NDArray[np.bool_] | None = None
    ) -> int:
        """The next token after ``history``, one that is ``allowed``.

        Shapes: logits (vocab,), left unchanged; allowed (vocab,).
        Raises: TrinityError if the logits are not finite; InputError if ``logit_bias`` forbids
        every token.
        """
        check_finite(float(logits.max()))  # NaN is the maximum, so one pass finds every case
        if self._chain is not None:
            return self._chained(self._chain, logits, history, allowed)
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
        if self._chain is not None:
            count = self._chain.best_needed
        else:
            count = 1 if params.temperature == 0 else params.top_k
        if not count:
            return None
        also = [*barred]
        if self._adjusts:
            also += self._bias_ids.tolist()
            for most in self._ranges:
                if not 0 < most <= LONG:
                    return None
                also += [*history[-most:], *proposals]
        return Best(count, np.unique(np.array(also, np.int64)) if also else _NO_IDS)

    def skip(self) -> None:
        """Consume the random number of a token that was chosen elsewhere."""
        if self.params.temperature != 0 or self._chain is not None:
            self._draws.next()

    def forget(self) -> None:
        """Forget the history, because the next one is another text."""
        self._penalties.forget()
        if self._chain is not None:
            self._chain.forget()

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
        most = highest(shares, top)
        most = most[shares[most] > 0]
        logprobs = np.array([math.log(share) for share in shares[most].tolist()])
        share = float(shares[ids == token_id][0])
        best = Alternatives(ids[most], logprobs, text)
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
        return int(ids[self._draws.position(weights)])

    def _chained(
        self,
        chain: SamplerChain,
        logits: Floats,
        history: Sequence[int],
        allowed: NDArray[np.bool_] | None,
    ) -> int:
        """As ``sample``, by a chain of samplers."""
        self._drawn = None
        logits = self._biased(logits)
        if allowed is None:
            candidates = Candidates(self._ids, logits, whole=True)
        else:
            ids = np.flatnonzero(allowed)
            candidates = Candidates(ids, logits[ids])
        position, weights = chain.choose(candidates, history, self._draws)
        if self._keeps:
            self._drawn = candidates.ids, weights
        return int(candidates.ids[position])

    def _biased(self, logits: Floats) -> Floats:
        """The logits after the bias, in the scratch buffer."""
        out = self._scratch
        np.copyto(out, logits)
        with np.errstate(over="ignore"):
            out[self._bias_ids] += self._bias
        return out

    def _adjusted(self, logits: Floats, history: Sequence[int]) -> Floats:
        """The logits after bias and penalties, in the scratch buffer."""
        out = self._biased(logits)
        if self.params.has_penalties and len(history):
            ids, counts = self._penalties.counted(history)
            with np.errstate(over="ignore"):
                out[ids] = self._penalties.penalized(out[ids], counts)
        largest = float(out.max())
        if largest == -math.inf:
            raise InputError("logit_bias forbids every token; leave at least one", "logit_bias")
        if not math.isfinite(largest):
            raise InputError(
                "logit_bias and penalties push a logit beyond float32; lower them", "logit_bias"
            )
        return out

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
            "`trinity selftest` tells which"
        )
