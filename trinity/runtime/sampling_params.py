"""Sampling options with their defaults and ranges. Does not need NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from trinity.errors import InputError
from trinity.options.checks import check_integer, check_number
from trinity.options.option import Option, check_options


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling options, in the order in which they apply. Defaults are llama.cpp's.

    1. ``logit_bias``: token id to a number added to its logit; ``-inf`` forbids the token.
    2. Penalties, for tokens among the last ``penalty_last_n`` of prompt and response (-1: all,
       0: no penalties). ``repetition_penalty`` divides a positive logit and multiplies a
       negative one; then ``frequency_penalty`` is subtracted once per occurrence and
       ``presence_penalty`` once.
    3. ``top_k``: keep the k best tokens (0: all).
    4. ``top_p``: keep the fewest tokens whose probabilities sum to ``top_p`` or more (1: all).
    5. ``min_p``: keep tokens with at least ``min_p`` times the best probability (0: all).
    6. ``temperature`` divides the logits before sampling; 0 takes the best token after steps 1
       and 2, and the lowest id if several are equal.

    ``seed`` makes sampling reproducible; None takes a seed from the operating system. Seeds below
    2^32 give the same random numbers as in llama.cpp.

    Raises: InputError for a value of the wrong type or out of range.
    """

    temperature: Annotated[
        float, Option("Sampling temperature; 0 is greedy.", ("--temperature", "--temp"), low=0)
    ] = 0.8
    top_k: Annotated[
        int, Option("Sample from the k most probable tokens; 0: from all.", ("--top-k",), low=0)
    ] = 40
    top_p: Annotated[
        float,
        Option(
            "Sample from the most probable tokens with this total probability; 1: from all.",
            ("--top-p",),
            low=0,
            high=1,
        ),
    ] = 0.95
    min_p: Annotated[
        float,
        Option("Minimum probability relative to the best token.", ("--min-p",), low=0, high=1),
    ] = 0.05
    repetition_penalty: Annotated[
        float,
        Option(
            "Penalty on tokens that occurred; 1: none, 1.1 is usual.",
            ("--repetition-penalty", "--repeat-penalty"),
            above=0,
        ),
    ] = 1.0
    frequency_penalty: Annotated[
        float,
        Option("Subtracted from a token's logit for each occurrence.", ("--frequency-penalty",)),
    ] = 0.0
    presence_penalty: Annotated[
        float,
        Option("Subtracted from the logit of each used token.", ("--presence-penalty",)),
    ] = 0.0
    penalty_last_n: Annotated[
        int,
        Option(
            "Number of last tokens that penalties consider; -1: all.",
            ("--penalty-last-n", "--repeat-last-n"),
            low=-1,
        ),
    ] = 64
    logit_bias: Annotated[
        Mapping[int, float] | None,
        Option(
            "Added to a token's logit; -inf forbids the token.",
            ("--logit-bias",),
            check=checked_bias,
            values="token ids to numbers",
            read=read_bias,
            repeated=True,
            metavar="ID=VALUE",
        ),
    ] = field(default=None, hash=False)
    seed: Annotated[
        int | None,
        Option(
            "Random seed; the same seed gives the same text; -1 or not given: random.",
            ("--seed", "-s"),
            low=0,
            none=-1,
        ),
    ] = None

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def has_penalties(self) -> bool:
        """Whether a penalty can change a logit."""
        return self.penalty_last_n != 0 and (
            self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
        )


def checked_bias(name: str, bias: object) -> dict[int, float]:
    """A private copy of a logit bias. Raises InputError for anything else."""
    if not isinstance(bias, Mapping):
        raise InputError(
            f"{name} is {bias!r} ({type(bias).__name__}); it must map token ids to numbers"
        )
    checked = {}
    for key, value in bias.items():
        token = check_integer(f"{name}: a token id", key, low=0)
        if value != -math.inf:
            check_number(f"{name}[{token}]", value)
        checked[token] = float(value)
    return checked


def read_bias(flag: str, texts: Sequence[str]) -> dict[int, float]:
    """A logit bias from texts such as "5=-inf". Raises InputError."""
    bias = {}
    for text in texts:
        token, _, value = text.partition("=")
        try:
            bias[int(token)] = float(value)
        except ValueError:
            raise InputError(f"{flag} {text!r}: write it as ID=VALUE") from None
    return bias
