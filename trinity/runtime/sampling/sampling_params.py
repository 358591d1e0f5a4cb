"""Sampling options with their defaults and ranges. Does not need NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from trinity.errors import InputError
from trinity.options.checks import check_integer, check_number
from trinity.options.option import Option, check_options
from trinity.runtime.sampling.sampler_names import (
    DEFAULT_ORDER,
    SAMPLERS,
    checked_breakers,
    checked_samplers,
    read_breakers,
    read_samplers,
)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling options. Names, defaults and meaning are llama.cpp's.

    ``logit_bias`` comes first, then the samplers in the order of ``samplers``, then a token is
    drawn from what they leave. With ``mirostat``, only the bias and ``temperature`` apply before
    it. ``temperature`` 0 takes the best token, and the lowest id if several are equal.

    ``seed`` makes sampling reproducible; None takes a seed from the operating system. Seeds below
    2^32 give the same random numbers as in llama.cpp.

    Raises: InputError for a value of the wrong type or out of range.
    """

    temperature: Annotated[
        float, Option("Sampling temperature; 0 is greedy.", ("--temperature", "--temp"), low=0)
    ] = 0.8
    top_k: Annotated[int, Option("Sample from the k most probable tokens; 0: from all.", low=0)] = (
        40
    )
    top_p: Annotated[
        float,
        Option(
            "Sample from the most probable tokens with this total probability; 1: from all.",
            low=0,
            high=1,
        ),
    ] = 0.95
    min_p: Annotated[
        float, Option("Minimum probability relative to the best token.", low=0, high=1)
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
        float, Option("Subtracted from a token's logit for each occurrence.")
    ] = 0.0
    presence_penalty: Annotated[float, Option("Subtracted from the logit of each used token.")] = (
        0.0
    )
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

    samplers: Annotated[
        Sequence[str],
        Option(
            "Samplers in the order in which they apply, separated by semicolons, or their letters "
            "in llama.cpp; the others are off.",
            ("--samplers", "--sampler-seq", "--sampling-seq"),
            check=checked_samplers,
            values="a list of " + ", ".join(SAMPLERS),
            read=read_samplers,
            metavar="NAMES",
        ),
    ] = DEFAULT_ORDER
    typical_p: Annotated[
        float,
        Option(
            "Sample from the most typical tokens with this total probability; 1: from all.",
            ("--typical-p", "--typical"),
            low=0,
            high=1,
        ),
    ] = 1.0
    top_n_sigma: Annotated[
        float,
        Option(
            "Exclude tokens this many standard deviations below the largest logit; -1: none.",
            ("--top-n-sigma", "--top-nsigma"),
            low=-1,
        ),
    ] = -1.0
    xtc_probability: Annotated[
        float,
        Option(
            "Probability with which XTC removes the most probable tokens; 0: never.", low=0, high=1
        ),
    ] = 0.0
    xtc_threshold: Annotated[
        float,
        Option(
            "XTC removes all but one of the tokens of at least this probability; above 0.5: off.",
            low=0,
            high=1,
        ),
    ] = 0.1
    dynatemp_range: Annotated[
        float,
        Option(
            "Vary the temperature by up to this much with the entropy of the tokens; 0: off.", low=0
        ),
    ] = 0.0
    dynatemp_exponent: Annotated[
        float,
        Option(
            "The temperature within --dynatemp-range grows with this power of the entropy.",
            ("--dynatemp-exponent", "--dynatemp-exp"),
            low=0,
        ),
    ] = 1.0
    dry_multiplier: Annotated[
        float, Option("DRY: penalty on tokens that would extend a repetition; 0: off.", low=0)
    ] = 0.0
    dry_base: Annotated[
        float, Option("DRY: factor of the penalty for each further repeated token.", low=1)
    ] = 1.75
    dry_allowed_length: Annotated[
        int, Option("DRY: longest repetition without a growing penalty.", low=0)
    ] = 2
    dry_penalty_last_n: Annotated[
        int, Option("DRY: number of last tokens searched for repetitions; -1: all; 0: off.", low=-1)
    ] = 64
    dry_sequence_breakers: Annotated[
        Sequence[str],
        Option(
            'DRY: text that no repetition extends over; can be repeated; "none": no such text.',
            ("--dry-sequence-breaker",),
            check=checked_breakers,
            values="a list of texts",
            read=read_breakers,
            repeated=True,
            metavar="TEXT",
        ),
    ] = ("\n", ":", '"', "*")
    mirostat: Annotated[
        int,
        Option("Mirostat version, 1 or 2, instead of the other samplers; 0: off.", low=0, high=2),
    ] = 0
    mirostat_tau: Annotated[
        float,
        Option(
            "Mirostat: mean surprise of a token to approach, in bits.",
            ("--mirostat-tau", "--mirostat-ent"),
            low=0,
        ),
    ] = 5.0
    mirostat_eta: Annotated[
        float, Option("Mirostat: learning rate.", ("--mirostat-eta", "--mirostat-lr"), low=0)
    ] = 0.1
    adaptive_target: Annotated[
        float,
        Option(
            "Prefer tokens near this probability, if --samplers has adaptive_p; -1: off.",
            low=-1,
            high=1,
        ),
    ] = -1.0
    adaptive_decay: Annotated[
        float,
        Option("How much adaptive_p counts earlier tokens; higher is slower.", low=0, high=0.99),
    ] = 0.9

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def usual(self) -> bool:
        """Whether the usual samplers apply in their usual order, and none of the others."""
        return (
            self.samplers == DEFAULT_ORDER
            and self.typical_p == 1
            and self.top_n_sigma <= 0
            and not (self.mirostat or self.dry_multiplier)
            and not (self.xtc_probability or self.dynatemp_range)
        )

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
