"""The keyword arguments of every generating method, and what they come apart into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypedDict, Unpack

from trinity.runtime.cancel import Cancel
from trinity.runtime.generation import Limits
from trinity.runtime.sampling_params import SamplingParams, check_integer


class GenerationOptions(TypedDict, total=False):
    """Options of every method that generates; all may be left out.

    Sampling, explained in ``SamplingParams``: temperature (0.8; 0 is greedy), top_k (40), top_p
    (0.95), min_p (0.05), repetition_penalty (1), frequency_penalty (0), presence_penalty (0),
    penalty_last_n (64), logit_bias (none), seed (from the operating system).

    The end, explained in ``Limits``: max_tokens (None: until the context is full), stop (a string
    or several; None for none), ignore_eos (False), logprobs (None; n notes the n best tokens too).

    The prompt: add_bos (True: where the model's file wants one), parse_special (False: text such
    as "<|eot_id|>" is text). ``cache_prompt`` (True) shares keys and values with other requests
    that begin with the same tokens; without it, equal calls do exactly the same arithmetic,
    which matters for quantized types whose prefill and decode round differently.

    ``speculative`` (True): in a text that repeats itself, guess the next tokens from the text so
    far and evaluate them in one step. It changes the time alone. A number is the most tokens to
    guess at once, 0 or False turns it off.

    ``priority`` (0): of the requests that wait, those with lower numbers are taken first.

    ``cancel`` is anything with ``is_set()``, such as a ``threading.Event``: once set, generation
    ends before the next token or the next part of the prompt. The scheduler's thread asks it.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    penalty_last_n: int
    logit_bias: Mapping[int, float] | None
    seed: int | None
    max_tokens: int | None
    stop: str | Sequence[str] | None
    ignore_eos: bool
    logprobs: int | None
    add_bos: bool
    parse_special: bool
    cache_prompt: bool
    speculative: bool | int
    priority: int
    cancel: Cancel | None


PROPOSALS = 15
SAMPLING = frozenset(f.name for f in fields(SamplingParams))
LIMITS = frozenset(f.name for f in fields(Limits))


@dataclass(frozen=True, slots=True)
class Request:
    """Options that have been checked."""

    sampling: SamplingParams
    limits: Limits
    add_bos: bool = True
    parse_special: bool = False
    cache_prompt: bool = True
    speculative: bool | int = True
    priority: int = 0
    cancel: Cancel | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.speculative, bool):
            check_integer("speculative", self.speculative, low=0)
        check_integer("priority", self.priority, low=None)

    @property
    def proposals(self) -> int:
        """The most tokens to guess at once."""
        return PROPOSALS if self.speculative is True else int(self.speculative)

    def sample(self, number: int) -> Request:
        """The request for one of several answers: a seed is followed by others."""
        seed = self.sampling.seed
        if seed is None:
            return self
        return replace(self, sampling=replace(self.sampling, seed=seed + number))

    @classmethod
    def of(cls, **options: Unpack[GenerationOptions]) -> Request:
        """Raises: TypeError for an unknown name, InputError for a value out of range."""
        unknown = options.keys() - GenerationOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
        rest = options.keys() - SAMPLING - LIMITS
        given: dict[str, object] = {**options}
        return cls(
            SamplingParams(**{k: v for k, v in given.items() if k in SAMPLING}),  # type: ignore[arg-type]
            Limits(**{k: v for k, v in given.items() if k in LIMITS}),  # type: ignore[arg-type]
            **{k: v for k, v in given.items() if k in rest},  # type: ignore[arg-type]
        )
