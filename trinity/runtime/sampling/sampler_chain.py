"""A chain of samplers in any order, for the options that ``Sampler`` does not apply itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trinity.errors import InputError
from trinity.runtime.sampling.active_samplers import active_samplers
from trinity.runtime.sampling.candidates import (
    Candidates,
    apply_dynamic_temperature,
    apply_temperature,
    exclude_top_choices,
    keep_min_p,
    keep_top_k,
    keep_top_n_sigma,
    keep_top_p,
    keep_typical,
)
from trinity.runtime.sampling.draws import Draws
from trinity.runtime.sampling.dry import Dry
from trinity.runtime.sampling.dry_breakers import Breakers
from trinity.runtime.sampling.penalties import Penalties
from trinity.runtime.sampling.sampling_params import SamplingParams
from trinity.runtime.sampling.selection import (
    AdaptiveP,
    Mirostat1,
    Mirostat2,
    PlainSelection,
    Selection,
)

Step = Callable[[Candidates, Sequence[int]], None]


class SamplerChain:
    """Applies the samplers of one sequence in order, and chooses a token.

    ``breakers``: those of DRY; only needed if it is on.
    """

    def __init__(
        self,
        params: SamplingParams,
        vocab_size: int,
        penalties: Penalties,
        breakers: Breakers | None,
    ) -> None:
        self._params = params
        self._penalties = penalties
        self._dry = None if breakers is None else Dry(params, breakers)
        self._short_draws = Draws(params.seed)  # XTC has its own
        self._selection = _selection(params, vocab_size)
        self._steps = [self._step(name) for name in active_samplers(params) if name != "adaptive_p"]

    def choose(
        self, candidates: Candidates, history: Sequence[int], draws: Draws
    ) -> tuple[int, NDArray[np.float64]]:
        """The position of the next token after ``history``, and the weights of the candidates.

        The candidates are those left by the samplers afterwards.
        Raises: InputError if ``logit_bias`` and penalties leave no token.
        """
        _check_possible(candidates)
        for step in self._steps:
            step(candidates, history)
        return self._selection.choose(candidates, draws)

    @property
    def best_needed(self) -> int | None:
        """The number of largest logits that suffice, in addition to those of tokens
        with penalties; None: all.
        """
        for name in active_samplers(self._params):
            if name == "top_k":
                return self._params.top_k
            if name not in ("penalties", "dry"):
                return None
        return None

    def forget(self) -> None:
        """Forget the history, because the next one is another text."""
        if self._dry is not None:
            self._dry.forget()

    def _step(self, name: str) -> Step:
        params = self._params
        match name:
            case "penalties":
                return self._apply_penalties
            case "dry":
                return self._apply_dry
            case "xtc":
                return self._apply_xtc
            case "top_n_sigma":
                step = partial(keep_top_n_sigma, n=params.top_n_sigma)
            case "top_k":
                step = partial(keep_top_k, k=params.top_k)
            case "typ_p":
                step = partial(keep_typical, mass=params.typical_p)
            case "top_p":
                step = partial(keep_top_p, mass=params.top_p)
            case "min_p":
                step = partial(keep_min_p, share=params.min_p)
            case _ if params.dynatemp_range > 0 and not params.mirostat:
                step = partial(
                    apply_dynamic_temperature,
                    temperature=params.temperature,
                    spread=params.dynatemp_range,
                    exponent=params.dynatemp_exponent,
                )
            case _:
                step = partial(apply_temperature, temperature=params.temperature)
        return lambda candidates, history: step(candidates)

    def _apply_penalties(self, candidates: Candidates, history: Sequence[int]) -> None:
        if not len(history):
            return
        ids, counts = self._penalties.counted(history)
        positions, which = candidates.positions(ids)
        with np.errstate(over="ignore"):
            candidates.logits[positions] = self._penalties.penalized(
                candidates.logits[positions], counts[which]
            )
        candidates.descending = False
        _check_possible(candidates)

    def _apply_dry(self, candidates: Candidates, history: Sequence[int]) -> None:
        assert self._dry is not None
        self._dry.apply(candidates, history)
        _check_possible(candidates)

    def _apply_xtc(self, candidates: Candidates, history: Sequence[int]) -> None:
        params = self._params
        if len(candidates.ids) > 1 and self._short_draws.next_short() <= params.xtc_probability:
            exclude_top_choices(candidates, params.xtc_threshold)


def _check_possible(candidates: Candidates) -> None:
    """Raise InputError if no token is left, or if a logit is infinite."""
    largest = float(candidates.logits.max(initial=-math.inf))
    if largest == -math.inf:
        raise InputError(
            "logit_bias and penalties forbid every token that is allowed; leave at least one",
            "logit_bias",
        )
    if not math.isfinite(largest):
        raise InputError(
            "logit_bias and penalties push a logit beyond float32; lower them", "logit_bias"
        )


def _selection(params: SamplingParams, vocab_size: int) -> Selection:
    if params.mirostat == 1:
        return Mirostat1(vocab_size, params.mirostat_tau, params.mirostat_eta)
    if params.mirostat == 2:
        return Mirostat2(params.mirostat_tau, params.mirostat_eta)
    if "adaptive_p" in active_samplers(params):
        return AdaptiveP(params.adaptive_target, params.adaptive_decay)
    return PlainSelection()
