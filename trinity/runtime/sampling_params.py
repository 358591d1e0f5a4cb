"""How the next token is chosen: the options, their defaults and their ranges. Needs no NumPy."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field

from trinity.errors import InputError


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Options of the sampler, in the order in which they act. Defaults are llama.cpp's.

    1. ``logit_bias``: token id to a number added to its logit; ``-inf`` forbids the token.
    2. Penalties, for tokens among the last ``penalty_last_n`` of prompt and answer (-1: all of
       them, 0: no penalties). ``repetition_penalty`` divides a positive logit and multiplies a
       negative one; then ``frequency_penalty`` is subtracted once per occurrence and
       ``presence_penalty`` once.
    3. ``top_k``: the k best tokens stay (0: all).
    4. ``top_p``: the fewest tokens whose probabilities sum to at least ``top_p`` stay (1: all).
    5. ``min_p``: tokens with at least ``min_p`` times the best one's probability stay (0: all).
    6. ``temperature`` divides the logits before the draw; 0 takes the best token after steps 1
       and 2, the lowest id where several are equal.

    ``seed`` makes the draw reproducible; None takes one from the operating system.

    Raises: InputError for a value of the wrong type or out of range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)
    seed: int | None = None

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, low=0.0)
        check_integer("top_k", self.top_k, low=0)
        check_number("top_p", self.top_p, low=0.0, high=1.0)
        check_number("min_p", self.min_p, low=0.0, high=1.0)
        check_number("repetition_penalty", self.repetition_penalty, low=0.0)
        if self.repetition_penalty == 0:
            raise InputError("repetition_penalty is 0; it must be above 0 (1 turns it off)")
        check_number("frequency_penalty", self.frequency_penalty)
        check_number("presence_penalty", self.presence_penalty)
        check_integer("penalty_last_n", self.penalty_last_n, low=-1)
        if self.seed is not None:
            check_integer("seed", self.seed, low=0)
        if self.logit_bias is not None:
            object.__setattr__(self, "logit_bias", checked_bias(self.logit_bias))

    @property
    def has_penalties(self) -> bool:
        """Whether any penalty can change a logit."""
        return self.penalty_last_n != 0 and (
            self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
        )


def span(low: float, high: float) -> str:
    """The allowed range, in words."""
    if high == math.inf:
        return "a finite number" if low == -math.inf else f"a finite number of at least {low:g}"
    return f"a number from {low:g} to {high:g}"


def check_number(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> None:
    """Raise InputError unless ``value`` is a finite number in [low, high]."""
    try:
        if isinstance(value, bool | str):
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        message = f"{name} is {value!r} ({type(value).__name__}); it must be {span(low, high)}"
        raise InputError(message) from None
    if not (math.isfinite(number) and low <= number <= high):
        raise InputError(f"{name} is {number:g}; it must be {span(low, high)}")


def check_integer(name: str, value: object, low: int | None, high: int | None = None) -> int:
    """``value`` as an int; raise InputError unless it is an integer in [low, high]."""
    limit = "an integer"
    if low is not None:
        limit += f" of at least {low}" if high is None else f" from {low} to {high}"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        message = f"{name} is {value!r} ({type(value).__name__}); it must be {limit}"
        raise InputError(message) from None
    if (low is not None and number < low) or (high is not None and number > high):
        raise InputError(f"{name} is {number}; it must be {limit}")
    return number


def checked_bias(bias: object) -> dict[int, float]:
    """A private copy of a logit bias. Raises InputError for anything else."""
    if not isinstance(bias, Mapping):
        raise InputError(
            f"logit_bias is {bias!r} ({type(bias).__name__}); it must map token ids to numbers"
        )
    checked = {}
    for key, value in bias.items():
        token = check_integer("a token id in logit_bias", key, low=0)
        if value != -math.inf:
            check_number(f"logit_bias[{token}]", value)
        checked[token] = float(value)
    return checked
