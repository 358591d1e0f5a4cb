"""The keyword arguments of all generating methods, checked and grouped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypedDict, Unpack

from trinity.errors import InputError
from trinity.options.checks import check_integer, check_number
from trinity.options.load_options import LARGEST_SCALE
from trinity.options.option import Declared, Option, check_options, declared
from trinity.runtime.cancel import Cancel
from trinity.runtime.guide import Grammar, check_grammar
from trinity.runtime.limits import GenerationLimits
from trinity.runtime.page import Domain
from trinity.runtime.sampling_params import SamplingParams


class GenerationOptions(TypedDict, total=False):
    """Options of every method that generates; all may be left out.

    Sampling, explained in ``SamplingParams``: temperature (0.8; 0 is greedy), top_k (40), top_p
    (0.95), min_p (0.05), repetition_penalty (1), frequency_penalty (0), presence_penalty (0),
    penalty_last_n (64), logit_bias (none), seed (from the operating system).

    The end, explained in ``GenerationLimits``: max_tokens (None: until the context is full), stop
    (a string or several; None for none), stop_tokens (none), min_tokens (0), ignore_eos (False),
    logprobs (None; n notes the n best tokens too), processed_logprobs (False: the model's own),
    context_shift (False), keep (0; None: the prompt).

    ``grammar`` (None) is a ``trinity.Grammar`` that the answer keeps to: JSON of a schema, a
    regular expression, a choice, a grammar. The answer ends with "stop" once it is whole; where
    it ends by anything else it is the beginning of a whole one.

    The prompt: add_bos (True: where the model's file wants one), parse_special (False: text such
    as "<|eot_id|>" is text). ``cache_prompt`` (True) shares keys and values with other requests
    that begin with the same tokens; without it, equal calls do exactly the same arithmetic,
    which matters for quantized types whose prefill and decode round differently.

    ``skip_special`` (True) leaves special tokens out of the text. Models write calls of tools and
    reasoning between such tokens: ``trinity.conversation`` wants False.

    ``speculative`` (True): in a text that repeats itself, guess the next tokens from the text so
    far and evaluate them in one step. It changes the time alone. A number is the most tokens to
    guess at once, 0 or False turns it off.

    ``priority`` (0): of the requests that wait, those with lower numbers are taken first; those of
    1000 and more stand still while there are others.

    ``lora`` (None: as loaded) maps adapters, numbered from 0 in the order in which the model was
    loaded with them, to their weights; those that it does not name have 0.

    ``slot`` (None): the number of a cache of its own, which the answer shares with others of that
    slot alone. ``cache_salt`` (none): a text; prompts share keys and values only with those that
    were given the same one.

    ``progress`` (False): every chunk of a stream has timings so far, and while the prompt is
    evaluated chunks without text say how much of it is.

    ``resumed`` (none) are the tokens of an answer to the same prompt with the same options that was
    broken off: it goes on behind them, and its text begins with theirs. It needs a seed or
    temperature 0, and has no ``logprobs``.

    ``cancel`` is anything with ``is_set()``, such as a ``threading.Event``: once set, generation
    ends before the next token or the next part of the prompt. The engine thread asks it.
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
    stop_tokens: Collection[int] | None
    min_tokens: int
    ignore_eos: bool
    logprobs: int | None
    processed_logprobs: bool
    context_shift: bool
    keep: int | None
    grammar: Grammar | None
    add_bos: bool
    parse_special: bool
    cache_prompt: bool
    skip_special: bool
    speculative: bool | int
    priority: int
    lora: Mapping[int, float] | None
    slot: int | None
    cache_salt: str
    progress: bool
    resumed: Sequence[int] | None
    cancel: Cancel | None


PROPOSALS = 15
LONG_STOP = 256  # characters of stop strings from which preparing them takes time
SAMPLING = frozenset(option.name for option in declared(SamplingParams))
LIMITS = frozenset(option.name for option in declared(GenerationLimits))


def check_speculative(name: str, value: object) -> bool | int:
    """A bool, or the maximum number of tokens to speculate. Raises InputError."""
    return value if isinstance(value, bool) else check_integer(name, value, low=0)


def check_lora(name: str, value: object) -> Mapping[int, float]:
    """Scales of adapters by number. Raises InputError."""
    if not isinstance(value, Mapping):
        raise InputError(
            f"{name} is {value!r:.80} ({type(value).__name__}); it must be a dict of the numbers "
            "of adapters, from 0, and their weights"
        )
    return {
        check_integer(f"a key of {name}", number, low=0): check_number(
            f"{name}[{number!r:.20}]", weight, -LARGEST_SCALE, LARGEST_SCALE
        )
        for number, weight in value.items()
    }


def check_tokens(name: str, value: object) -> list[int] | None:
    """Token ids as a tuple. Raises InputError."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} is {value!r:.40} ({type(value).__name__}); it must be token ids")
    return [check_integer(f"one of {name}", token, low=0) for token in value]


@dataclass(frozen=True, slots=True)
class Request:
    """The checked options of a request."""

    sampling: SamplingParams
    limits: GenerationLimits
    grammar: Annotated[
        Grammar | None,
        Option(
            "Grammar of the text: a JSON schema, a regular expression, a choice or a grammar.",
            check=check_grammar,
            values="a trinity.Grammar",
        ),
    ] = None
    add_bos: Annotated[
        bool,
        Option(
            "Add the BOS token before the prompt if the model's file asks for it.",
            ("--bos/--no-bos",),
        ),
    ] = True
    parse_special: Annotated[
        bool, Option("Read special tokens written in the prompt as tokens.", ("--parse-special",))
    ] = False
    cache_prompt: Annotated[
        bool, Option("Reuse the KV cache of an earlier prompt with the same prefix.")
    ] = True
    skip_special: Annotated[bool, Option("Omit special tokens from the text.")] = True
    speculative: Annotated[
        bool | int,
        Option(
            "Speculate tokens of repetitive text: faster, with the same text.",
            ("--speculate/--no-speculate",),
            check=check_speculative,
            values="True, False, or the most tokens to speculate at once",
        ),
    ] = True
    priority: Annotated[
        int,
        Option(
            "Lower values are scheduled first; requests with 1000 or more are paused while any "
            "other request runs."
        ),
    ] = 0
    lora: Annotated[
        Mapping[int, float] | None,
        Option(
            "Weights of adapters by index; 0 for others; as loaded if not given.",
            check=check_lora,
            values="a dict of indices and weights",
        ),
    ] = None
    slot: Annotated[
        int | None,
        Option("Slot id; requests share cached prefixes only within the same slot.", low=0),
    ] = None
    cache_salt: Annotated[
        str,
        Option("Requests share cached prompts only with requests of the same salt.", values="text"),
    ] = ""
    progress: Annotated[
        bool, Option("Report timings with every chunk, and chunks during prefill.")
    ] = False
    resumed: Annotated[
        Sequence[int] | None,
        Option(
            "Token ids of an interrupted response to continue from.",
            check=check_tokens,
            values="token ids",
        ),
    ] = None
    cancel: Annotated[
        Cancel | None,
        Option("Ends generation once it is set.", values="anything with is_set()"),
    ] = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.resumed and self.limits.logprobs is not None:
            raise InputError(
                "resumed cannot be used with logprobs: they are not known any more", "resumed"
            )

    @property
    def domain(self) -> Domain:
        """The domain of texts that the request shares KV pages with."""
        return Domain(self.slot, self.cache_salt)

    @property
    def proposals(self) -> int:
        """The maximum number of tokens to speculate at once."""
        return PROPOSALS if self.speculative is True else int(self.speculative)

    @property
    def takes_time(self) -> bool:
        """Whether preparing the request takes too long for an event loop.

        Grammars are compiled, and many stop strings become an automaton.
        """
        return self.grammar is not None or sum(map(len, self.limits.stop)) > LONG_STOP

    def sample(self, number: int) -> Request:
        """The request for completion ``number`` of several; it uses seed + ``number``."""
        seed = self.sampling.seed
        if seed is None:
            return self
        return replace(self, sampling=replace(self.sampling, seed=seed + number))

    @classmethod
    def of(cls, **options: Unpack[GenerationOptions]) -> Request:
        """Check keyword arguments. Raises: TypeError for an unknown name, InputError for a bad
        value.
        """
        unknown = options.keys() - GenerationOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
        rest = options.keys() - SAMPLING - LIMITS
        given: dict[str, object] = {**options}
        return cls(
            SamplingParams(**{k: v for k, v in given.items() if k in SAMPLING}),  # type: ignore[arg-type]
            GenerationLimits(**{k: v for k, v in given.items() if k in LIMITS}),  # type: ignore[arg-type]
            **{k: v for k, v in given.items() if k in rest},  # type: ignore[arg-type]
        )


def generation_options() -> tuple[Declared, ...]:
    """The type of every name in ``GenerationOptions``."""
    return declared(GenerationLimits) + declared(SamplingParams) + declared(Request)
