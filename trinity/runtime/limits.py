"""When a response ends, and which log-probabilities are returned. Does not need NumPy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from trinity.errors import InputError
from trinity.options.checks import check_integer
from trinity.options.option import API_ONLY, Option, check_options

# Limits of the stop strings of one request: their number and their total length in characters.
MOST_STOP_STRINGS, MOST_STOP_CHARACTERS = 1024, 8192


@dataclass(frozen=True, slots=True)
class GenerationLimits:
    """When a response ends, and which log-probabilities are returned.

    Raises: InputError for a value of the wrong type or out of range.
    """

    max_tokens: Annotated[
        int | None,
        Option(
            "Maximum number of tokens to generate; -1 or not given: until the context is full.",
            ("--max-tokens", "-n", "--n-predict"),
            low=0,
            none=-1,
        ),
    ] = None
    """Prompt and response share the context. A prompt that fills it gets one token."""
    stop: Annotated[
        Sequence[str],
        Option(
            "Stop before this text; can be repeated.",
            check=stop_strings,
            values="a text, several, or None",
            repeated=True,
            metavar="TEXT",
        ),
    ] = ()
    """At most 1,024 strings, 8,192 characters together. The field holds a tuple."""
    stop_tokens: Annotated[
        Collection[int] | None,
        Option(
            "Token ids that end generation, in addition to the model's end tokens.",
            API_ONLY,
            check=token_ids,
            values="token ids, or None",
        ),
    ] = frozenset()
    """Until ``min_tokens``, neither these nor end-of-generation tokens are sampled."""
    min_tokens: Annotated[
        int,
        Option(
            "Minimum number of tokens to generate; no end token is sampled before.", API_ONLY, low=0
        ),
    ] = 0
    ignore_eos: Annotated[bool, Option("Continue after end tokens.")] = False
    logprobs: Annotated[
        int | None,
        Option(
            "Return log-probabilities of the generated tokens and of this many most probable "
            "alternatives; --json prints them.",
            low=0,
        ),
    ] = None
    processed_logprobs: Annotated[
        bool,
        Option(
            "Return log-probabilities after penalties, temperature and filters, not the raw ones.",
            API_ONLY,
        ),
    ] = False

    context_shift: Annotated[
        bool,
        Option("When the context is full, drop older tokens and continue, up to --max-tokens."),
    ] = False
    """Drops the older half of the tokens after the first ``keep`` and computes the rest again.
    Needs ``max_tokens``.
    """
    keep: Annotated[
        int | None,
        Option(
            "Number of tokens at the start that --context-shift keeps; -1: the whole prompt.",
            low=0,
            none=-1,
        ),
    ] = 0

    def __post_init__(self) -> None:
        check_options(self)


def stop_strings(name: str, value: object) -> tuple[str, ...]:
    """Stop strings as a tuple, from one string, several or None. Raises InputError, also for too
    many.
    """
    if value is None:
        return ()
    try:
        texts = (value,) if isinstance(value, str) else tuple(value)  # type: ignore[arg-type]
    except TypeError:
        raise InputError(
            f"{name} is {value!r} ({type(value).__name__}); it must be text or a list of texts"
        ) from None
    if len(texts) > MOST_STOP_STRINGS:
        raise InputError(
            f"{name} has {len(texts)} strings; at most {MOST_STOP_STRINGS} are supported"
        )
    for text in texts:
        if not isinstance(text, str) or not text:
            raise InputError(f"a stop string is {text!r:.80}; it must be text, and not empty")
    characters = sum(map(len, texts))
    if characters > MOST_STOP_CHARACTERS:
        raise InputError(
            f"{name} has strings of {characters} characters together; at most "
            f"{MOST_STOP_CHARACTERS} are supported"
        )
    return texts


def token_ids(name: str, value: object) -> frozenset[int]:
    """A frozenset of token ids; None is the empty set. Raises InputError."""
    if value is None:
        return frozenset()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InputError(f"{name} is {value!r:.40} ({type(value).__name__}); it must be token ids")
    return frozenset(check_integer(f"one of {name}", token, low=0) for token in value)
